//! The plug-in lrc: layers of plain codes over one another, given as such or made from k, m and l.
//!
//! Invariants, beyond what Ceph checks:
//! 1. Every position is data or made by a layer, and no layer makes a position that holds data.
//! 2. A layer reads what is data or was made by an earlier layer.
//! 3. The first layer reads all data, for it says how large chunks are, and its alignment suits every layer.
//!
//! Source: src/erasure-code/lrc/ErasureCodeLrc.cc.

use std::collections::BTreeMap;

use crate::chunks::{ChunkSet, MAX_CHUNKS};
use crate::error::{LrcError, ProfileError};
use crate::profile::lrc_json::{self, LayerText};
use crate::profile::plain::{self, Plain};
use crate::profile::values::Values;
use crate::profile::{PlacementStep, no_such_plugin};

/// What `k`, `m` and `l` are when they are not set.
const UNSET: i64 = -1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layers {
    /// All positions, at most [`MAX_CHUNKS`].
    pub(crate) chunks: usize,
    /// Positions of data, in its order.
    pub(crate) data: Vec<usize>,
    pub(crate) layers: Vec<Layer>,
    /// The code of the first layer.
    pub(crate) first: Plain,
}

/// A plain code at some positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) code: Plain,
    pub(crate) data: Vec<usize>,
    pub(crate) coding: Vec<usize>,
}

pub(crate) fn parse(values: &mut Values) -> Result<(Layers, Vec<PlacementStep>), ProfileError> {
    let leaf = |bucket_type: String, count| PlacementStep { leaf: true, bucket_type, count };
    let mut steps = vec![leaf("host".to_owned(), 0)];
    let (mapping, texts) = match kml(values)? {
        Some(kml) => {
            let domain = values.get("crush-failure-domain").unwrap_or("host").to_owned();
            match values.get("crush-locality").unwrap_or_default() {
                "" if domain.is_empty() => {}
                "" => steps = vec![leaf(domain, 0)],
                locality => {
                    let bucket_type = locality.to_owned();
                    let choose = PlacementStep { leaf: false, bucket_type, count: kml.groups as i32 };
                    steps = vec![choose, leaf(domain, kml.l as i32 + 1)];
                }
            }
            (kml.mapping(), kml.layers())
        }
        None => {
            if let Some(text) = values.get("crush-steps") {
                steps = lrc_json::steps(text)?;
            }
            let texts = lrc_json::layers(values.get("layers").ok_or(LrcError::NoLayers)?)?;
            bound(texts.len())?;
            (values.get("mapping").map(str::to_owned).unwrap_or_default(), texts)
        }
    };
    Ok((layers(&mapping, &texts)?, steps))
}

/// Groups of chunks, each with a local parity over it.
struct Kml {
    k: usize,
    m: usize,
    l: usize,
    groups: usize,
}

/// Source: ErasureCodeLrc::parse_kml.
fn kml(values: &mut Values) -> Result<Option<Kml>, ProfileError> {
    // A word that is no number counts as unset at first, and is told of when nothing else is wrong.
    let numbers = ["k", "m", "l"].map(|key| values.int(key, "-1"));
    let [k, m, l] = numbers.each_ref().map(|n| n.as_ref().copied().unwrap_or(UNSET));
    let wrong = numbers.into_iter().find_map(Result::err);
    if [k, m, l] == [UNSET; 3] {
        return wrong.map_or(Ok(None), Err);
    }
    if [k, m, l].contains(&UNSET) {
        return Err(LrcError::AllOrNothing.into());
    }
    if let Some(key) = ["mapping", "layers", "crush-steps"].into_iter().find(|key| values.get(key).is_some())
    {
        return Err(LrcError::Generated(key).into());
    }
    if l == 0 || (k + m) % l != 0 {
        return Err(LrcError::TotalNotMultiple.into());
    }
    let groups = (k + m) / l;
    if groups == 0 || k % groups != 0 {
        return Err(LrcError::DataNotMultiple.into());
    }
    if m % groups != 0 {
        return Err(LrcError::CodingNotMultiple.into());
    }
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    // The checks that the first layer's own plug-in makes.
    if k < 2 {
        return Err(ProfileError::TooFewData(k));
    }
    if m < 1 {
        return Err(ProfileError::TooFewCoding(m));
    }
    if l < 1 {
        return Err(ProfileError::TooSmallGroup(l));
    }
    let all = k + m + groups;
    match [k, m, l, groups].map(usize::try_from) {
        [Ok(k), Ok(m), Ok(l), Ok(groups)] if all <= MAX_CHUNKS as i64 => Ok(Some(Kml { k, m, l, groups })),
        _ => Err(ProfileError::TooManyChunks(all)),
    }
}

impl Kml {
    fn mapping(&self) -> String {
        let group = "D".repeat(self.k / self.groups) + &"_".repeat(self.m / self.groups) + "_";
        group.repeat(self.groups)
    }

    /// A layer over everything, then one for each group.
    fn layers(&self) -> Vec<LayerText> {
        let layer = |map: String| LayerText { map, values: BTreeMap::new() };
        let group = "D".repeat(self.k / self.groups) + &"c".repeat(self.m / self.groups) + "_";
        let mut layers = vec![layer(group.repeat(self.groups))];
        for local in 0..self.groups {
            let part = |i| if i == local { "D".repeat(self.l) + "c" } else { "_".repeat(self.l + 1) };
            layers.push(layer((0..self.groups).map(part).collect()));
        }
        layers
    }
}

fn bound(count: usize) -> Result<(), ProfileError> {
    if count <= MAX_CHUNKS { Ok(()) } else { Err(ProfileError::TooManyChunks(count as i64)) }
}

fn layers(mapping: &str, texts: &[LayerText]) -> Result<Layers, ProfileError> {
    let made: Vec<Layer> = texts.iter().map(layer).collect::<Result<_, _>>()?;
    if mapping.is_empty() {
        return Err(LrcError::NoMapping.into());
    }
    let chunks = mapping.chars().count();
    bound(chunks)?;
    let Some(first) = made.first().map(|layer| layer.code.clone()) else {
        return Err(LrcError::TooFewLayers.into());
    };
    for (layer, text) in texts.iter().enumerate() {
        let len = text.map.chars().count();
        if len != chunks {
            return Err(LrcError::LayerSize { layer, len, expected: chunks }.into());
        }
    }
    let layers = Layers { chunks, data: positions(mapping, 'D'), layers: made, first };
    match layers.unsound() {
        None => Ok(layers),
        Some(reason) => Err(LrcError::Unsound(reason).into()),
    }
}

/// The positions of a letter.
fn positions(map: &str, letter: char) -> Vec<usize> {
    map.chars().enumerate().filter(|(_, c)| *c == letter).map(|(i, _)| i).collect()
}

/// Source: ErasureCodeLrc::layers_init.
fn layer(text: &LayerText) -> Result<Layer, ProfileError> {
    let (data, coding) = (positions(&text.map, 'D'), positions(&text.map, 'c'));
    let mut values = Values(text.values.clone());
    let (k, m) = (data.len().to_string(), coding.len().to_string());
    for (key, default) in
        [("k", k.as_str()), ("m", m.as_str()), ("plugin", "jerasure"), ("technique", "reed_sol_van")]
    {
        if values.get(key).is_none() {
            values.set(key, default);
        }
    }
    let code = match values.get("plugin").unwrap_or_default() {
        "jerasure" => plain::jerasure(&mut values)?,
        "isa" => plain::isa(&mut values)?,
        "lrc" => {
            let instead = "write its layers into the layers of the outer profile";
            return Err(ProfileError::Unsupported { what: "an lrc layer of plugin=lrc".to_owned(), instead });
        }
        other => return Err(no_such_plugin(other)),
    };
    if (code.k, code.m) != (data.len(), coding.len()) {
        let counts = format!("{} has k={} and m={}", text.map, code.k, code.m);
        return Err(LrcError::Unsound(counts + ": leave k and m out, the letters say them").into());
    }
    Ok(Layer { code, data, coding })
}

impl Layers {
    /// Why chunks would be without content, or data overwritten; Ceph does not look.
    fn unsound(&self) -> Option<String> {
        let data: ChunkSet = self.data.iter().copied().collect();
        let mut known = data;
        for (i, layer) in self.layers.iter().enumerate() {
            if let Some(at) = layer.data.iter().find(|at| !known.contains(**at)) {
                return Some(format!("layer {i} reads position {at}, which no layer before it makes"));
            }
            if let Some(at) = layer.coding.iter().find(|at| known.contains(**at)) {
                return Some(format!("layer {i} makes position {at}, which has content already"));
            }
            layer.coding.iter().for_each(|at| known.insert(*at));
            if i > 0 && layer.data.len() + layer.coding.len() == self.chunks {
                return Some(format!("layer {i} has every chunk, and Ceph leaves out the layers before it"));
            }
        }
        if let Some(at) = (ChunkSet::first(self.chunks) - known).iter().next() {
            return Some(format!("position {at} is neither data nor made by a layer"));
        }
        let (first, others) = self.layers.split_first()?;
        if first.data != self.data {
            return Some(
                "the first layer has to read every data chunk, it says how large chunks are".to_owned(),
            );
        }
        let alignment = self.first.chunk_alignment();
        let misfit = others.iter().find(|layer| alignment % layer.code.kind().grain() as u64 != 0)?;
        let grain = misfit.code.kind().grain();
        Some(format!(
            "chunks of a multiple of {alignment} bytes do not suit a layer with {grain} bytes together"
        ))
    }
}
