//! The plug-ins jerasure and isa: bounds, defaults and the size of chunks.
//!
//! Source: ErasureCodeJerasure.cc and ErasureCodePluginJerasure.cc in src/erasure-code/jerasure,
//! ErasureCodeIsa.cc and ErasureCodePluginIsa.cc in src/erasure-code/isa.

use crate::arithmetic::Kind;
use crate::chunks::MAX_CHUNKS;
use crate::error::ProfileError;
use crate::profile::values::Values;

/// The largest packet, in bytes: a chunk is at least 32 of them with jerasure's usual alignment.
const MAX_PACKET: i64 = 1 << 20;
/// Bytes of the widest word that jerasure's alignment rules know. Source: LARGEST_VECTOR_WORDSIZE.
const VECTOR: u64 = 16;
/// Source: EC_ISA_ADDRESS_ALIGNMENT in xor_op.h.
const ISA_ALIGNMENT: u64 = 32;
/// Bits of a word of the codes that are built, and bytes of the C type int that alignments count in.
const W: u64 = 8;
const INT: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Technique {
    JerasureReedSolVan,
    JerasureR6,
    JerasureCauchyOrig,
    JerasureCauchyGood,
    IsaReedSolVan,
    IsaCauchy,
}

/// A code of one matrix. `k` is at least 1, `m` at least 1, both together at most [`MAX_CHUNKS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) technique: Technique,
    pub(crate) k: usize,
    pub(crate) m: usize,
    /// Bytes of a packet; unused by codes whose bytes stand for themselves.
    packet: u64,
    per_chunk_alignment: bool,
}

impl Plain {
    pub(crate) fn kind(&self) -> Kind {
        match self.technique {
            Technique::JerasureCauchyOrig | Technique::JerasureCauchyGood => {
                Kind::Packets(self.packet as usize)
            }
            Technique::JerasureReedSolVan
            | Technique::JerasureR6
            | Technique::IsaReedSolVan
            | Technique::IsaCauchy => Kind::Bytes,
        }
    }

    /// What a chunk's length is a multiple of, in bytes.
    pub(crate) fn chunk_alignment(&self) -> u64 {
        match (self.technique, self.kind()) {
            (Technique::IsaReedSolVan | Technique::IsaCauchy, _) => ISA_ALIGNMENT,
            (_, Kind::Bytes) if self.per_chunk_alignment => W * VECTOR,
            (_, Kind::Bytes) => W * INT,
            (_, Kind::Packets(_)) if self.per_chunk_alignment => (W * self.packet).next_multiple_of(VECTOR),
            (_, Kind::Packets(_)) => W * self.packet * INT,
        }
    }

    /// Bytes of a chunk of a stripe with `bytes` of data, which is below 2^40. Where chunks are shorter than
    /// their alignment Ceph's jerasure with per-chunk alignment ends itself; here they are padded.
    pub(crate) fn chunk_size(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.k as u64).next_multiple_of(self.chunk_alignment())
    }
}

pub(crate) fn jerasure(values: &mut Values) -> Result<Plain, ProfileError> {
    let name = values.get("technique").unwrap_or_default().to_owned();
    let (technique, label, default_m) = match name.as_str() {
        "reed_sol_van" => (Technique::JerasureReedSolVan, "ReedSolomonVandermonde", "3"),
        "reed_sol_r6_op" => (Technique::JerasureR6, "ReedSolomonRAID6", "2"),
        "cauchy_orig" => (Technique::JerasureCauchyOrig, "cauchy_orig", "3"),
        "cauchy_good" => (Technique::JerasureCauchyGood, "cauchy_good", "3"),
        "liberation" | "blaum_roth" | "liber8tion" => {
            let instead = "choose reed_sol_r6_op, the RAID 6 code of jerasure that is quick on bytes";
            return Err(ProfileError::Unsupported { what: format!("technique={name}"), instead });
        }
        _ => {
            let choices = "reed_sol_van, reed_sol_r6_op, cauchy_orig, cauchy_good";
            return Err(ProfileError::UnknownTechnique { technique: name, choices });
        }
    };
    let (k, m, w) = (values.int("k", "7")?, values.int("m", default_m)?, values.int("w", "8")?);
    check_mapping(values, "jerasure")?;
    check_counts(k, m)?;
    if technique == Technique::JerasureR6 && m != 2 {
        return Err(ProfileError::NotRaid6 { technique: label, m });
    }
    check_word(technique, label, w)?;
    let mut plain = Plain { technique, k: 0, m: 0, packet: 0, per_chunk_alignment: false };
    if let Kind::Packets(_) = plain.kind() {
        plain.packet = packet_size(values)?;
    }
    // Raid 6 does not know the word, and Ceph leaves it out of what it stores.
    if technique != Technique::JerasureR6 {
        plain.per_chunk_alignment = values.flag("jerasure-per-chunk-alignment", "false");
    }
    if plain.packet % 2 == 1 && plain.per_chunk_alignment {
        let rule = "even with jerasure-per-chunk-alignment, or chunks would end within a packet";
        return Err(ProfileError::PacketSize { value: plain.packet as i64, rule });
    }
    (plain.k, plain.m) = bounded(k, m)?;
    Ok(plain)
}

/// Words of 16 and 32 bits are Ceph's, and not built; the cauchy codes take any word there.
fn check_word(technique: Technique, label: &'static str, w: i64) -> Result<(), ProfileError> {
    let is_cauchy = matches!(technique, Technique::JerasureCauchyOrig | Technique::JerasureCauchyGood);
    match w {
        8 => Ok(()),
        16 | 32 => Err(no_word(w)),
        1..=32 if is_cauchy => Err(no_word(w)),
        _ => Err(ProfileError::WordSize { technique: label, w }),
    }
}

fn no_word(w: i64) -> ProfileError {
    let instead = "set w=8, which is enough for 32 chunks and the quickest";
    ProfileError::Unsupported { what: format!("w={w}"), instead }
}

/// Ceph checks nothing here: it divides by a packetsize of 0.
fn packet_size(values: &mut Values) -> Result<u64, ProfileError> {
    let value = values.int("packetsize", "2048")?;
    match u64::try_from(value) {
        Ok(packet) if (1..=MAX_PACKET).contains(&value) => Ok(packet),
        _ => Err(ProfileError::PacketSize { value, rule: "from 1 to 1048576: 2048 is usual" }),
    }
}

pub(crate) fn isa(values: &mut Values) -> Result<Plain, ProfileError> {
    // An empty word is no technique; a missing one is the default.
    if values.get("technique").is_none() {
        values.set("technique", "reed_sol_van");
    }
    let technique = match values.get("technique").unwrap_or_default() {
        "reed_sol_van" => Technique::IsaReedSolVan,
        "cauchy" => Technique::IsaCauchy,
        other => {
            let technique = other.to_owned();
            return Err(ProfileError::UnknownTechnique { technique, choices: "reed_sol_van,cauchy" });
        }
    };
    let (k, m) = (values.int("k", "7")?, values.int("m", "3")?);
    check_counts(k, m)?;
    if technique == Technique::IsaReedSolVan {
        if k > 32 {
            return Err(ProfileError::TooManyChunks(k + m));
        }
        if m > 4 {
            return Err(ProfileError::VandermondeCoding(m));
        }
        if m == 4 && k > 21 {
            return Err(ProfileError::VandermondeData(k));
        }
    }
    check_mapping(values, "isa")?;
    let (k, m) = bounded(k, m)?;
    Ok(Plain { technique, k, m, packet: 0, per_chunk_alignment: false })
}

/// Source: ErasureCode::sanity_check_k_m.
fn check_counts(k: i64, m: i64) -> Result<(), ProfileError> {
    match (k, m) {
        (..=1, _) => Err(ProfileError::TooFewData(k)),
        (_, ..=0) => Err(ProfileError::TooFewCoding(m)),
        _ => Ok(()),
    }
}

fn bounded(k: i64, m: i64) -> Result<(usize, usize), ProfileError> {
    match (usize::try_from(k), usize::try_from(m)) {
        (Ok(data), Ok(coding)) if data + coding <= MAX_CHUNKS => Ok((data, coding)),
        _ => Err(ProfileError::TooManyChunks(k + m)),
    }
}

/// jerasure counts the mapping twice and never finds it right; isa puts data where it says and then computes
/// as if it said nothing, over the data.
fn check_mapping(values: &Values, plugin: &'static str) -> Result<(), ProfileError> {
    match values.get("mapping") {
        None | Some("") => Ok(()),
        Some(_) => Err(ProfileError::MappingOfPlain(plugin)),
    }
}
