//! Policies of buckets and of users: who may do what, under which conditions. The attribute
//! `user.rgw.iam-policy` of a bucket keeps its policy's text as it was given, `user.rgw.user-policy` of a
//! user those of its policies by their names. Source: src/rgw/rgw_iam_policy.cc, src/rgw/rgw_arn.cc.
//!
//! 1. One unknown word refuses the whole policy.
//! 2. A principal or resource that this cluster does not know matches nothing. A statement whose resources
//!    are all unknown allows nothing, and denies everything if it is a Deny.
//! 3. As in radosgw a statement with `NotAction` alone never applies.

mod action;
mod condition;
mod json;
mod matching;
mod parse;

use crate::UserId;

pub use action::Action;
use action::Actions;
use condition::Condition;
pub use condition::Environment;
pub use json::Json;
use matching::wildcards;

/// Bytes of a policy's text; AWS takes 20 KiB.
pub const MAX_POLICY: usize = 64 << 10;
/// In front of keys of conditions on an object's tags.
pub const EXISTING_TAG: &str = "s3:ExistingObjectTag/";

/// What a policy says to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Allow,
    Deny,
    /// Nothing: grants decide.
    Pass,
}

impl Effect {
    /// Of all that is said.
    pub fn of(said: impl Iterator<Item = Self>) -> Self {
        said.fold(Self::Pass, |all, one| match (all, one) {
            (Self::Deny, _) | (_, Self::Deny) => Self::Deny,
            (Self::Allow, _) | (_, Self::Allow) => Self::Allow,
            (Self::Pass, Self::Pass) => Self::Pass,
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    statements: Vec<Statement>,
}

/// Source: rgw::auth::Principal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Principal {
    Everybody,
    Tenant(String),
    User {
        tenant: String,
        id: String,
    },
    /// A service of the gateways' own, by its name.
    Service(String),
    /// Roles and their like, which sign no requests here.
    Other,
}

/// Resources of the policy's tenant, by a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Resource {
    /// False for those of other services and regions.
    is_ours: bool,
    pattern: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Statement {
    effect: Effect,
    principals: Vec<Principal>,
    not_principals: Vec<Principal>,
    actions: Actions,
    not_actions: Actions,
    resources: Vec<Resource>,
    not_resources: Vec<Resource>,
    /// Whether one was named, also where none can be read.
    names_resources: bool,
    conditions: Vec<Condition>,
}

impl Principal {
    fn is(&self, user: &UserId) -> bool {
        match self {
            Self::Everybody => true,
            Self::Tenant(tenant) => user.tenant == tenant.as_bytes(),
            Self::User { tenant, id } => {
                let all_subusers = id.strip_suffix(":*").is_some_and(|id| user.id == id.as_bytes());
                user.tenant == tenant.as_bytes() && (user.id == id.as_bytes() || all_subusers)
            }
            Self::Service(_) | Self::Other => false,
        }
    }
}

impl Resource {
    fn fits(&self, name: &[u8], is_at_home: bool) -> bool {
        self.is_ours && is_at_home && wildcards(self.pattern.as_bytes(), name, false)
    }
}

impl Statement {
    fn is_for(&self, user: &UserId) -> bool {
        let named = |list: &[Principal]| list.iter().any(|principal| principal.is(user));
        match (self.principals.is_empty(), self.not_principals.is_empty()) {
            (true, true) => false,
            (false, _) if !named(&self.principals) => false,
            (_, false) => !named(&self.not_principals) && !self.excludes_unknown(),
            _ => true,
        }
    }

    /// Whether it allows everybody except a principal that is unknown here. radosgw drops such names, and so
    /// allows nobody.
    fn excludes_unknown(&self) -> bool {
        let is_unknown = |one: &Principal| matches!(one, Principal::Other | Principal::Service(_));
        self.effect == Effect::Allow && self.not_principals.iter().any(is_unknown)
    }

    fn is_about(&self, name: &[u8], is_at_home: bool) -> bool {
        let fits = |list: &[Resource]| list.iter().any(|resource| resource.fits(name, is_at_home));
        if !self.resources.is_empty() {
            fits(&self.resources)
        } else if !self.not_resources.is_empty() {
            !fits(&self.not_resources)
        } else {
            !self.names_resources || self.effect == Effect::Deny
        }
    }

    fn eval(&self, env: &Environment, action: Action, name: &[u8], is_at_home: bool) -> Effect {
        let applies = self.is_about(name, is_at_home)
            && self.actions.has(action)
            && !self.not_actions.has(action)
            && self.holds(env);
        if applies { self.effect } else { Effect::Pass }
    }

    fn holds(&self, env: &Environment) -> bool {
        self.conditions.iter().all(|condition| condition.holds(env))
    }

    /// Source: IsPublicStatement, which takes a statement for one named user for a public one, too.
    fn is_public(&self) -> bool {
        let everybody = |list: &[Principal]| list.contains(&Principal::Everybody);
        let all_but = self.principals.is_empty() && !self.not_principals.is_empty();
        let open = if all_but { !everybody(&self.not_principals) } else { everybody(&self.principals) };
        let known = [
            ("aws:SourceIp", "1.1.1.1"),
            ("aws:UserId", "anonymous"),
            ("s3:x-amz-server-side-encryption-aws-kms-key-id", "secret"),
        ];
        let env = known.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        // Conditions on all but some are not looked at, as in radosgw.
        self.effect == Effect::Allow && open && (all_but || self.holds(&env))
    }
}

impl Policy {
    /// What it says to a user's request for a bucket of its tenant, or for an object as `bucket/key`.
    pub fn eval(&self, env: &Environment, user: &UserId, action: Action, name: &[u8]) -> Effect {
        let named = self.statements.iter().filter(|statement| statement.is_for(user));
        Effect::of(named.map(|statement| statement.eval(env, action, name, true)))
    }

    /// What it says to a service of the gateways' own that works in a bucket of its tenant. Who names
    /// everybody names no service. Source: ServiceIdentity in src/rgw/rgw_auth.h of 20.
    pub fn eval_service(&self, env: &Environment, service: &str, action: Action, name: &[u8]) -> Effect {
        let is = |list: &[Principal]| {
            list.iter().any(|one| matches!(one, Principal::Service(name) if name == service))
        };
        let named = self.statements.iter().filter(|statement| is(&statement.principals));
        Effect::of(named.map(|statement| statement.eval(env, action, name, true)))
    }

    /// What a user's own policy says to its request. It names nobody; who it names all the same is passed
    /// over. `is_at_home`: the bucket is of the user's tenant.
    pub fn eval_own(&self, env: &Environment, action: Action, name: &[u8], is_at_home: bool) -> Effect {
        Effect::of(self.statements.iter().map(|statement| statement.eval(env, action, name, is_at_home)))
    }

    /// Whether it lets everybody in but those that it names.
    pub fn allows_all_but_some(&self) -> bool {
        self.statements.iter().any(|s| s.effect == Effect::Allow && !s.not_principals.is_empty())
    }

    /// Whether it opens something to everybody.
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(Statement::is_public)
    }

    /// Whether a condition asks for tags of the object.
    pub fn asks_for_tags(&self) -> bool {
        let mut conditions = self.statements.iter().flat_map(|statement| &statement.conditions);
        conditions.any(|condition| condition.key.starts_with(EXISTING_TAG))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(statement: &str) -> Policy {
        let text = format!(r#"{{"Version":"2012-10-17","Statement":{statement}}}"#);
        Policy::read(text.as_bytes(), "").unwrap()
    }

    fn eval(policy: &Policy, user: &'static str, action: Action, name: &str) -> Effect {
        policy.eval(&Environment::new(), &UserId::plain(user), action, name.as_bytes())
    }

    #[test]
    fn statements_allow_and_deny() {
        use Action::{DeleteObject, GetObject, ListBucket};
        let p = policy(
            r#"[{"Effect":"Allow","Principal":"*","Action":["s3:Get*","s3:ListBucket"],
                 "Resource":["arn:aws:s3:::b","arn:aws:s3:::b/public/*"]},
                {"Effect":"Deny","Principal":{"AWS":"arn:aws:iam:::user/bad"},"Action":"*","Resource":"*"}]"#,
        );
        for (user, action, name, want) in [
            ("u", GetObject, "b/public/x", Effect::Allow),
            ("u", GetObject, "b/private", Effect::Pass),
            ("u", DeleteObject, "b/public/x", Effect::Pass),
            ("u", ListBucket, "b", Effect::Allow),
            ("bad", ListBucket, "b", Effect::Deny),
            ("bad", DeleteObject, "b/private", Effect::Deny),
        ] {
            assert_eq!(eval(&p, user, action, name), want, "{user} {action:?} {name}");
        }
    }

    #[test]
    fn principals_are_users_tenants_and_all_but_some() {
        let check = |principal: &str, user: &UserId, want: bool| {
            let p = policy(&format!(
                r#"{{"Effect":"Allow",{principal},"Action":"s3:GetObject","Resource":"*"}}"#
            ));
            let got = p.eval(&Environment::new(), user, Action::GetObject, b"b/k");
            assert_eq!(got == Effect::Allow, want, "{principal} {user:?}");
        };
        let (plain, tenant) = (UserId::plain("u"), UserId::from_text(&"t$u".into()));
        for (principal, in_plain, in_tenant) in [
            (r#""Principal":"*""#, true, true),
            (r#""Principal":{"AWS":"*"}"#, true, true),
            (r#""Principal":{"AWS":"arn:aws:iam:::user/u"}"#, true, false),
            (r#""Principal":{"AWS":["arn:aws:iam::t:user/u"]}"#, false, true),
            (r#""Principal":{"AWS":"arn:aws:iam::t:root"}"#, false, true),
            (r#""Principal":{"AWS":"t"}"#, false, true),
            (r#""Principal":{"AWS":"arn:aws:iam:::role/u"}"#, false, false),
            (r#""Principal":{"CanonicalUser":"u"}"#, false, false),
            (r#""NotPrincipal":{"AWS":"arn:aws:iam:::user/u"}"#, false, true),
            (r#""Principal":{"Federated":"arn:aws:iam:::user/u"}"#, true, false),
            (r#""NotPrincipal":{"CanonicalUser":"u"}"#, false, false),
            (r#""NotPrincipal":{"AWS":"arn:aws:iam:::usr/u"}"#, false, false),
            (r#""Principal":"*","NotPrincipal":{"AWS":"arn:aws:iam:::user/u"}"#, false, true),
            (r#""Sid":"nobody""#, false, false),
        ] {
            check(principal, &plain, in_plain);
            check(principal, &tenant, in_tenant);
        }
    }

    #[test]
    fn a_users_own_policy_names_nobody() {
        let read = |resource: &str| {
            let text =
                format!(r#"{{"Statement":{{"Effect":"Allow","Action":"s3:Get*","Resource":"{resource}"}}}}"#);
            Policy::read(text.as_bytes(), "t").unwrap()
        };
        let own = |p: &Policy, action, name: &str, home| {
            p.eval_own(&Environment::new(), action, name.as_bytes(), home)
        };
        for (resource, at_home, elsewhere) in [
            ("arn:aws:s3:::b/*", Effect::Allow, Effect::Pass),
            ("arn:aws:s3::t:b/*", Effect::Allow, Effect::Pass),
            ("arn:aws:s3::*:b/*", Effect::Allow, Effect::Pass),
            ("arn:aws:s3::t:*", Effect::Allow, Effect::Pass),
            ("arn:aws:s3::other:b/*", Effect::Pass, Effect::Pass),
            ("*", Effect::Allow, Effect::Pass),
        ] {
            let p = read(resource);
            let of = |home| own(&p, Action::GetObject, "b/k", home);
            assert_eq!((of(true), of(false)), (at_home, elsewhere), "{resource}");
            assert_eq!(own(&p, Action::PutObject, "b/k", true), Effect::Pass);
            // As a bucket's it would be for nobody.
            assert_eq!(
                p.eval(&Environment::new(), &UserId::plain("u"), Action::GetObject, b"b/k"),
                Effect::Pass
            );
        }
    }

    #[test]
    fn services_are_named_and_come_from_what_they_work_for() {
        let p = policy(
            r#"{"Effect":"Allow","Principal":{"Service":"logging.s3.amazonaws.com"},"Action":"s3:PutObject",
                "Resource":"arn:aws:s3:::logs/p/*","Condition":{"ArnLike":{"aws:SourceArn":"arn:aws:s3:::b*"}}}"#,
        );
        let eval = |service: &str, from: &str, name: &str| {
            let env = Environment::from([("aws:SourceArn".to_owned(), format!("arn:aws:s3::{from}"))]);
            p.eval_service(&env, service, Action::PutObject, name.as_bytes())
        };
        let service = "logging.s3.amazonaws.com";
        assert_eq!(eval(service, ":bucket", "logs/p/x"), Effect::Allow);
        for (service, from, name) in [
            (service, ":other", "logs/p/x"),
            // A star is no tenant's colon.
            (service, "b:x", "logs/p/x"),
            (service, ":bucket", "logs/x"),
            ("other.amazonaws.com", ":bucket", "logs/p/x"),
        ] {
            assert_eq!(eval(service, from, name), Effect::Pass, "{service} {from} {name}");
        }
        assert_eq!(eval_as_user(&p), Effect::Pass);
        let all = policy(r#"{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"*"}"#);
        let env = Environment::new();
        assert_eq!(all.eval_service(&env, service, Action::PutObject, b"b/k"), Effect::Pass);
    }

    fn eval_as_user(p: &Policy) -> Effect {
        let env = Environment::from([("aws:SourceArn".to_owned(), "arn:aws:s3:::bucket".to_owned())]);
        p.eval(&env, &UserId::plain("u"), Action::PutObject, b"logs/p/x")
    }

    #[test]
    fn conditions_must_all_hold() {
        let p = policy(
            r#"{"Effect":"Allow","Principal":"*","Action":"s3:ListBucket","Resource":"*",
                "Condition":{"StringEquals":{"s3:prefix":["a","b"]},"NumericLessThan":{"s3:max-keys":10}}}"#,
        );
        let env = |prefix: &str, max: &str| {
            Environment::from([("s3:prefix".into(), prefix.into()), ("s3:max-keys".into(), max.into())])
        };
        let eval = |env| p.eval(&env, &UserId::plain("u"), Action::ListBucket, b"b");
        assert_eq!(eval(env("b", "5")), Effect::Allow);
        assert_eq!(eval(env("b", "10")), Effect::Pass);
        assert_eq!(eval(env("c", "5")), Effect::Pass);
        assert!(!p.asks_for_tags());
    }

    #[test]
    fn what_is_named_and_cannot_be_read_is_not_everything() {
        for resource in ["arn:aws:s3::other:b/*", "nonsense"] {
            let of = |effect: &str| {
                let text = format!(
                    r#"{{"Effect":"{effect}","Principal":"*","Action":"s3:*","Resource":"{resource}"}}"#
                );
                eval(&policy(&text), "u", Action::GetObject, "b/k")
            };
            assert_eq!((of("Allow"), of("Deny")), (Effect::Pass, Effect::Deny), "{resource}");
        }
        let p =
            policy(r#"{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:sqs:::b/*"}"#);
        assert_eq!(eval(&p, "u", Action::GetObject, "b/k"), Effect::Pass);
        let p =
            policy(r#"{"Effect":"Allow","Principal":"*","Action":"s3:*","NotResource":"arn:aws:s3:::b/a"}"#);
        assert_eq!(eval(&p, "u", Action::GetObject, "b/a"), Effect::Pass);
        assert_eq!(eval(&p, "u", Action::GetObject, "b/b"), Effect::Allow);
    }

    #[test]
    fn public_is_what_everybody_may_from_everywhere() {
        let of = |rest: &str| policy(&format!(r#"{{"Action":"s3:*","Resource":"*",{rest}}}"#)).is_public();
        assert!(of(r#""Effect":"Allow","Principal":"*""#));
        assert!(!of(r#""Effect":"Deny","Principal":"*""#));
        assert!(!of(r#""Effect":"Allow","Principal":{"AWS":"arn:aws:iam:::user/u"}"#));
        assert!(of(r#""Effect":"Allow","NotPrincipal":{"AWS":"arn:aws:iam:::user/u"}"#));
        let any = r#""Condition":{"StringLike":{"aws:UserAgent":"*"}}"#;
        assert!(of(&format!(r#""Effect":"Allow","NotPrincipal":{{"AWS":"arn:aws:iam:::user/u"}},{any}"#)));
        let inside = r#""Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#;
        assert!(!of(&format!(r#""Effect":"Allow","Principal":"*",{inside}"#)));
    }
}
