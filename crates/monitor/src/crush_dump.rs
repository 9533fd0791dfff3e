//! The CRUSH map as `osd crush dump` and its neighbours show it.
//!
//! Source: CrushWrapper::dump, dump_rule, dump_tunables and dump_choose_args in src/crush/CrushWrapper.cc.

use crush::{Bucket, CrushMap, Rule, Step, Tunables, weight_to_f32};
use serde_json::{Map, Value, json};

/// The whole map.
pub(crate) fn crush_json(crush: &CrushMap) -> Value {
    let devices = (0..crush.max_devices).map(|id| {
        let name = crush.item_name(id).map_or_else(|| format!("device{id}"), ToOwned::to_owned);
        let mut device = json!({ "id": id, "name": name });
        if let (Value::Object(fields), Some(class)) = (&mut device, crush.item_class(id)) {
            fields.insert("class".to_owned(), class.into());
        }
        device
    });
    let types = crush.type_names.iter().map(|(id, name)| json!({ "type_id": id, "name": name }));
    json!({
        "devices": devices.collect::<Vec<_>>(),
        "types": types.collect::<Vec<_>>(),
        "buckets": crush.buckets.iter().flatten().map(|b| bucket_json(crush, b)).collect::<Vec<_>>(),
        "rules": rules_json(crush),
        "tunables": tunables_json(crush),
        "choose_args": choose_args_json(crush),
    })
}

fn bucket_json(crush: &CrushMap, bucket: &Bucket) -> Value {
    let items = bucket.weighted_items().enumerate();
    let items = items.map(|(pos, (id, weight))| json!({ "id": id, "weight": weight, "pos": pos }));
    let kind = i32::from(bucket.type_id);
    let fields = [
        ("id", Some(bucket.id.into())),
        ("name", crush.item_name(bucket.id).map(Value::from)),
        ("type_id", Some(kind.into())),
        ("type_name", crush.type_name(kind).map(Value::from)),
        ("weight", Some(bucket.weight.into())),
        ("alg", Some(bucket.alg().name().into())),
        ("hash", Some(if bucket.hash == 0 { "rjenkins1" } else { "unknown" }.into())),
        ("items", Some(items.collect::<Vec<_>>().into())),
    ];
    fields.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?))).collect::<Map<_, _>>().into()
}

/// All rules.
pub(crate) fn rules_json(crush: &CrushMap) -> Value {
    let rules = (0..).zip(&crush.rules).filter_map(|(id, rule)| Some(rule_json(crush, id, rule.as_ref()?)));
    rules.collect::<Vec<_>>().into()
}

/// One rule.
pub(crate) fn rule_json(crush: &CrushMap, id: i32, rule: &Rule) -> Value {
    let fields = [
        ("rule_id", Some(id.into())),
        ("rule_name", crush.rule_name(id).map(Value::from)),
        ("ruleset", Some(rule.ruleset.into())),
        ("type", Some(rule.rule_type.into())),
        ("min_size", Some(rule.min_size.into())),
        ("max_size", Some(rule.max_size.into())),
        ("steps", Some(rule.steps.iter().map(|s| step_json(crush, s)).collect::<Vec<_>>().into())),
    ];
    fields.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?))).collect::<Map<_, _>>().into()
}

fn step_json(crush: &CrushMap, step: &Step) -> Value {
    let choose = |op: &str| json!({ "op": op, "num": step.arg1, "type": crush.type_name(step.arg2).unwrap_or_default() });
    match step.op {
        Step::NOOP => json!({ "op": "noop" }),
        Step::TAKE => {
            let name = crush.item_name(step.arg1).unwrap_or_default();
            json!({ "op": "take", "item": step.arg1, "item_name": name })
        }
        Step::EMIT => json!({ "op": "emit" }),
        Step::CHOOSE_FIRSTN => choose("choose_firstn"),
        Step::CHOOSE_INDEP => choose("choose_indep"),
        Step::CHOOSELEAF_FIRSTN => choose("chooseleaf_firstn"),
        Step::CHOOSELEAF_INDEP => choose("chooseleaf_indep"),
        Step::SET_CHOOSE_TRIES => json!({ "op": "set_choose_tries", "num": step.arg1 }),
        Step::SET_CHOOSELEAF_TRIES => json!({ "op": "set_chooseleaf_tries", "num": step.arg1 }),
        opcode => json!({ "opcode": opcode, "arg1": step.arg1, "arg2": step.arg2 }),
    }
}

/// The tunables, and what clients must know to follow them.
pub(crate) fn tunables_json(crush: &CrushMap) -> Value {
    let t = crush.tunables;
    let is = |profile: &&str| t.with_profile(profile) == Some(t);
    let known = ["jewel", "hammer", "firefly", "bobtail", "argonaut"];
    let profile = known.into_iter().find(|p| is(p)).unwrap_or("unknown");
    let legacy_straw = Tunables { straw_calc_version: t.straw_calc_version, ..Tunables::LEGACY };
    let tries = |t: &Tunables| (t.choose_local_tries, t.choose_local_fallback_tries, t.choose_total_tries);
    let steps = |ops: &[u32]| {
        u8::from(crush.rules.iter().flatten().any(|r| r.steps.iter().any(|s| ops.contains(&s.op))))
    };
    let v2 = [Step::CHOOSE_INDEP, Step::CHOOSELEAF_INDEP, Step::SET_CHOOSE_TRIES, Step::SET_CHOOSELEAF_TRIES];
    json!({
        "choose_local_tries": t.choose_local_tries,
        "choose_local_fallback_tries": t.choose_local_fallback_tries,
        "choose_total_tries": t.choose_total_tries,
        "chooseleaf_descend_once": t.chooseleaf_descend_once,
        "chooseleaf_vary_r": t.chooseleaf_vary_r,
        "chooseleaf_stable": t.chooseleaf_stable,
        "straw_calc_version": t.straw_calc_version,
        "allowed_bucket_algs": t.allowed_bucket_algs,
        "profile": profile,
        "optimal_tunables": u8::from(is(&"jewel")),
        "legacy_tunables": u8::from(t == legacy_straw),
        "minimum_required_version": crate::health::min_required_release(crush),
        "require_feature_tunables": u8::from(tries(&t) != tries(&Tunables::LEGACY)),
        "require_feature_tunables2": u8::from(t.chooseleaf_descend_once != 0),
        "has_v2_rules": steps(&v2),
        "require_feature_tunables3": u8::from(t.chooseleaf_vary_r != 0),
        "has_v3_rules": steps(&[Step::SET_CHOOSELEAF_VARY_R]),
        "has_v4_buckets": u8::from(crush.buckets.iter().flatten().any(|b| b.alg() == crush::Alg::Straw2)),
        "require_feature_tunables5": u8::from(t.chooseleaf_stable != 0),
        "has_v5_rules": steps(&[Step::SET_CHOOSELEAF_STABLE]),
    })
}

/// Weight sets and replaced ids, by pool id.
pub(crate) fn choose_args_json(crush: &CrushMap) -> Value {
    let mut sets = Map::new();
    for (set, args) in &crush.choose_args {
        let buckets = args.args.iter().enumerate().filter(|(_, arg)| !arg.is_empty());
        let list = buckets.map(|(index, arg)| {
            let mut fields = Map::new();
            fields.insert("bucket_id".to_owned(), CrushMap::bucket_id(index).into());
            if !arg.weight_sets.is_empty() {
                let floats =
                    |w: &Vec<u32>| w.iter().map(|w| f64::from(weight_to_f32(*w))).collect::<Vec<_>>();
                let weights: Vec<Vec<f64>> = arg.weight_sets.iter().map(floats).collect();
                fields.insert("weight_set".to_owned(), json!(weights));
            }
            if !arg.ids.is_empty() {
                fields.insert("ids".to_owned(), json!(arg.ids));
            }
            Value::Object(fields)
        });
        sets.insert(set.to_string(), list.collect::<Vec<_>>().into());
    }
    Value::Object(sets)
}
