//! Reading policies. Source: PolicyParser in src/rgw/rgw_iam_policy.cc.

use super::action::OF_OTHERS;
use super::condition::Operator;
use super::matching::by_colons;
use super::{Action, Actions, Condition, Effect, Json, MAX_POLICY, Policy, Principal, Resource, Statement};

/// Why a policy is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

type Read<T> = Result<T, Malformed>;

impl Policy {
    /// Reads the policy of a bucket or a user of a tenant.
    pub fn read(text: &[u8], tenant: &str) -> Read<Self> {
        if text.len() > MAX_POLICY {
            return Err(Malformed);
        }
        let Some(Json::Members(members)) = Json::read(text) else { return Err(Malformed) };
        once(&members)?;
        let mut policy = Self::default();
        for (name, value) in &members {
            match name.as_str() {
                "Version" if matches!(value.text(), Some("2008-10-17" | "2012-10-17")) => {}
                "Id" if value.text().is_some() => {}
                "Statement" => {
                    policy.statements =
                        each(value).iter().map(|one| statement(one, tenant)).collect::<Read<_>>()?;
                }
                _ => return Err(Malformed),
            }
        }
        Ok(policy)
    }
}

/// Refuses an object in which two members have the same name.
fn once(members: &[(String, Json)]) -> Read<()> {
    let names: std::collections::BTreeSet<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    if names.len() == members.len() { Ok(()) } else { Err(Malformed) }
}

/// One, or each of a list.
fn each(value: &Json) -> &[Json] {
    match value {
        Json::List(list) => list,
        one => std::slice::from_ref(one),
    }
}

fn texts(value: &Json) -> Read<Vec<&str>> {
    each(value).iter().map(|one| one.text().ok_or(Malformed)).collect()
}

fn statement(value: &Json, tenant: &str) -> Read<Statement> {
    let Json::Members(members) = value else { return Err(Malformed) };
    once(members)?;
    let mut s = Statement {
        effect: Effect::Deny,
        principals: Vec::new(),
        not_principals: Vec::new(),
        actions: Actions::default(),
        not_actions: Actions::default(),
        resources: Vec::new(),
        not_resources: Vec::new(),
        names_resources: false,
        conditions: Vec::new(),
    };
    for (name, value) in members {
        match name.as_str() {
            "Sid" => drop(value.text().ok_or(Malformed)?),
            "Effect" => s.effect = effect(value)?,
            "Principal" => s.principals = principals(value)?,
            "NotPrincipal" => s.not_principals = principals(value)?,
            "Action" => s.actions = actions(value)?,
            "NotAction" => s.not_actions = actions(value)?,
            "Resource" | "NotResource" => {
                s.names_resources = true;
                let list = texts(value)?.into_iter().filter_map(|text| resource(text, tenant)).collect();
                *(if name == "Resource" { &mut s.resources } else { &mut s.not_resources }) = list;
            }
            "Condition" => {
                for one in each(value) {
                    conditions(one, &mut s.conditions)?;
                }
            }
            _ => return Err(Malformed),
        }
    }
    Ok(s)
}

fn effect(value: &Json) -> Read<Effect> {
    match value.text() {
        Some("Allow") => Ok(Effect::Allow),
        Some("Deny") => Ok(Effect::Deny),
        _ => Err(Malformed),
    }
}

fn principals(value: &Json) -> Read<Vec<Principal>> {
    let members = match value {
        Json::Text(text) if text.starts_with('*') => return Ok(vec![Principal::Everybody]),
        Json::Members(members) => members,
        _ => return Err(Malformed),
    };
    once(members)?;
    let mut found = Vec::new();
    for (kind, value) in members {
        if !["AWS", "Federated", "Service", "CanonicalUser"].contains(&kind.as_str()) {
            return Err(Malformed);
        }
        for text in texts(value)? {
            found.push(match kind.as_str() {
                "AWS" | "Federated" => principal(text),
                "Service" => Principal::Service(text.to_owned()),
                _ => Principal::Other,
            });
        }
    }
    Ok(found)
}

/// Partition, service, region, account and resource of `arn:...`.
fn arn(text: &str) -> Option<[&str; 5]> {
    let mut parts = text.strip_prefix("arn:")?.splitn(5, ':');
    let mut next = || parts.next();
    Some([next()?, next()?, next()?, next()?, next()?])
}

fn is_partition(text: &str) -> bool {
    ["aws", "aws-cn", "aws-us-gov"].contains(&text)
}

fn principal(text: &str) -> Principal {
    if text == "*" {
        return Principal::Everybody;
    }
    let Some([partition, service, region, account, name]) = arn(text) else {
        return match text.contains([':', '/']) {
            true => Principal::Other,
            false => Principal::Tenant(text.to_owned()),
        };
    };
    if !is_partition(partition) || [service, region, account].iter().any(|part| part.contains('*')) {
        return Principal::Other;
    }
    match name.split_once('/') {
        None if name == "root" => Principal::Tenant(account.to_owned()),
        Some(("user", id)) => Principal::User { tenant: account.to_owned(), id: id.to_owned() },
        _ => Principal::Other,
    }
}

/// What a pattern names; one that names no action at all is refused.
fn actions(value: &Json) -> Read<Actions> {
    let mut all = Actions::default();
    for text in texts(value)? {
        if text.starts_with('*') {
            all = Actions::all();
            continue;
        }
        let mut named = Actions::default();
        let fitting = Action::ALL.iter().filter(|action| by_colons(text, &format!("s3:{}", action.name())));
        fitting.for_each(|action| named.add(*action));
        if named == Actions::default() && !OF_OTHERS.iter().any(|name| by_colons(text, name)) {
            return Err(Malformed);
        }
        all.merge(named);
    }
    Ok(all)
}

/// Nothing for what cannot be read, and for what is another tenant's. No tenant, or all, is the policy's own.
/// Source: ParseState::do_string in src/rgw/rgw_iam_policy.cc.
fn resource(text: &str, tenant: &str) -> Option<Resource> {
    if text == "*" {
        return Some(Resource { is_ours: true, pattern: text.to_owned() });
    }
    let [partition, service, region, account, pattern] = arn(text)?;
    let is_known = is_partition(partition) || partition == "*";
    let is_tenants = account.is_empty() || account == "*" || account == tenant;
    if !is_known || !is_tenants || pattern.contains(':') {
        return None;
    }
    let is_ours = (partition == "aws" || partition == "*")
        && (service == "s3" || service == "*")
        && region.bytes().all(|b| b == b'*');
    Some(Resource { is_ours, pattern: pattern.to_owned() })
}

fn conditions(value: &Json, into: &mut Vec<Condition>) -> Read<()> {
    let Json::Members(operators) = value else { return Err(Malformed) };
    for (name, value) in operators {
        let bare = name.strip_suffix("IfExists");
        let operator = Operator::named(bare.unwrap_or(name)).ok_or(Malformed)?;
        for one in each(value) {
            let Json::Members(keys) = one else { return Err(Malformed) };
            for (key, values) in keys {
                let values = texts(values)?.into_iter().map(str::to_owned).collect();
                into.push(Condition { operator, key: key.clone(), if_exists: bare.is_some(), values });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_all_known_is_refused() {
        let ok = |text: &str| Policy::read(text.as_bytes(), "").is_ok();
        let statement = |rest: &str| ok(&format!(r#"{{"Statement":[{{"Effect":"Allow",{rest}}}]}}"#));
        assert!(ok("{}") && ok(r#"{"Version":"2008-10-17","Id":"x","Statement":[]}"#));
        assert!(statement(r#""Action":["s3:*","iam:GetRole","sts:*"],"Principal":"*""#));
        assert!(statement(r#""Condition":{"StringLikeIfExists":{"s3:prefix":"x","aws:Referer":["y",1]}}"#));
        for wrong in ["", "[]", "{", r#"{"Version":"2012"}"#, r#"{"Statement":1}"#, r#"{"Other":"x"}"#] {
            assert!(!ok(wrong), "{wrong}");
        }
        for wrong in [
            r#""Action":"s3:Nothing""#,
            r#""Action":"x:*""#,
            r#""Action":[["s3:*"]]"#,
            r#""Principal":"arn:aws:iam:::user/u""#,
            r#""Principal":{"Root":"x"}"#,
            r#""Resource":{"a":"b"}"#,
            r#""Condition":{"Unknown":{"a":"b"}}"#,
            r#""Condition":{"Bool":{"aws:SecureTransport":true}}"#,
            r#""Effect":"Deny""#,
            r#""Unknown":"x""#,
        ] {
            assert!(!statement(wrong), "{wrong}");
        }
        let long = format!(r#"{{"Id":"{}"}}"#, "x".repeat(MAX_POLICY));
        assert!(!ok(&long));
        assert!(!ok(&"[".repeat(10_000)));
    }

    #[test]
    fn cut_at_every_length_nothing_is_read() {
        let text = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["arn:aws:iam::t:user/u"]},
            "Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*","Condition":{"Null":{"a":"true"}}}]}"#;
        assert!(Policy::read(text.as_bytes(), "t").is_ok());
        for end in 0..text.len() {
            assert!(Policy::read(&text.as_bytes()[..end], "t").is_err(), "{end}");
        }
    }
}
