//! Tickets in Ceph's form: AES-128-CBC under a fixed IV without authentication, so their holder can change
//! them.
//!
//! A changed bit of one block changes the same bit of the next block's plain text and garbles its own block.
//! So a change that aims at one field breaks others, and is found when every field is checked.
//!
//! Invariants of a ticket that is accepted:
//! 1. It is, byte for byte up to its padding, what a monitor's encoder makes of what it says: every version,
//!    the old user id and the flags included.
//! 2. It never allows everything without caps: a monitor's key server makes no such ticket.
//! 3. Its caps are printable text that the service's parser takes whole; its holder's name is printable, too.
//! 4. Its times fit each other, and it was not made in the future.
//!
//! One attack stays possible. CBC lets blocks of several tickets of one secret be put together, and a holder
//! of very many tickets can search for blocks that pass. Only the sealed form, in which Loligo's monitors
//! give tickets to Loligo's daemons, excludes that.

use std::time::Duration;

use types::{EntityType, Utime};

use crate::caps::validate_caps;
use crate::crypt::{decrypt_value, encrypt_value};
use crate::error::AuthError;
use crate::key::CryptoKey;
use crate::ticket::TicketInfo;

/// The longest life of a ticket of a service; Ceph's default is an hour.
const LONGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How far the clock of the monitor that made a ticket may be ahead of the service's.
const LARGEST_SKEW: Duration = Duration::from_secs(3600);
/// A ticket's session key is made in the same step as the ticket.
const KEY_APART: Duration = Duration::from_secs(60);
const NANOS: u32 = 1_000_000_000;

/// Opens what `seal_ticket` made in Ceph's form for `service`. The errors are `Undecryptable` under a wrong
/// secret and `Implausible` for what no monitor makes.
///
/// Source: KeyServer::_build_session_auth_info and KeyServerData::get_caps in
/// src/auth/cephx/CephxKeyServer.cc.
pub(crate) fn open(service: EntityType, secret: &CryptoKey, sealed: &[u8]) -> Result<TicketInfo, AuthError> {
    let info: TicketInfo = decrypt_value(secret, sealed, "the ticket")?;
    // Encoder and cipher are deterministic: whatever the decoder skipped or took in two forms shows here.
    if encrypt_value(secret, &info)? != sealed {
        return Err(AuthError::Implausible("its encoding"));
    }
    let wrong = [
        (info.ticket.caps.allow_all, "it allows everything without caps"),
        (!caps_parse(service, &info), "its caps"),
        (info.ticket.name.id.chars().any(char::is_control), "its holder's name"),
        (info.ticket.flags != 0, "its flags"),
        (!times_fit(&info), "its times"),
    ];
    match wrong.into_iter().find(|(wrong, _)| *wrong) {
        Some((_, what)) => Err(AuthError::Implausible(what)),
        None => Ok(info),
    }
}

/// The other half of the check of times, which needs the time of day.
pub(crate) fn made_before(info: &TicketInfo, now: Utime) -> Result<(), AuthError> {
    let early = info.ticket.created > now.plus(LARGEST_SKEW);
    if early { Err(AuthError::Implausible("it was made in the future")) } else { Ok(()) }
}

/// A ticket without caps passes.
fn caps_parse(service: EntityType, info: &TicketInfo) -> bool {
    let Ok(text) = info.ticket.caps.text() else { return false };
    !text.chars().any(char::is_control) && (text.is_empty() || validate_caps(service.as_str(), &text).is_ok())
}

fn times_fit(info: &TicketInfo) -> bool {
    let (created, expires) = (info.ticket.created, info.ticket.expires);
    let key = info.session_key.created();
    let apart = key.since(created).max(created.since(key));
    [created, expires, key].iter().all(|t| t.nsec < NANOS)
        && created <= expires
        && expires.since(created) <= LONGEST_LIFE
        && apart <= KEY_APART
}

#[cfg(test)]
mod tests {
    use types::{AuthName, GlobalId};

    use super::*;
    use crate::entity_auth::CapsInfo;
    use crate::ticket::{AuthTicket, TicketBlob, TicketForm, open_ticket, seal_ticket};

    const NOW: Utime = Utime { sec: 1_795_297_600, nsec: 123_456_789 };

    fn secret() -> CryptoKey {
        CryptoKey::new([0x5a; 16], NOW)
    }

    fn info(name: &str, caps: &str) -> TicketInfo {
        TicketInfo {
            ticket: AuthTicket {
                name: AuthName::new(EntityType::Client, name),
                global_id: GlobalId(4_242),
                created: NOW,
                expires: NOW.plus(Duration::from_secs(3600)),
                caps: CapsInfo::from_text(caps),
                flags: 0,
            },
            session_key: CryptoKey::new([0xc3; 16], NOW),
        }
    }

    fn sealed(info: &TicketInfo) -> TicketBlob {
        let mut none = |_: &mut [u8]| {};
        seal_ticket(TicketForm::Ceph, EntityType::Mgr, 1, &secret(), info, &mut none).expect("seals")
    }

    fn opened(blob: &TicketBlob) -> Result<TicketInfo, AuthError> {
        open_ticket(TicketForm::Ceph, EntityType::Mgr, &secret(), blob)
    }

    /// Every ticket that differs from this one in one bit.
    fn flipped(blob: &TicketBlob) -> impl Iterator<Item = TicketBlob> {
        (0..blob.blob.len() * 8).map(|bit| {
            let mut bytes = blob.blob.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            TicketBlob { secret_id: blob.secret_id, blob: bytes.into() }
        })
    }

    #[test]
    fn no_flipped_bit_gives_a_right() {
        let others = ["allow r, allow command \"pg dump\"", "profile crash", ""];
        for (caps, step) in [("allow r", 1)].into_iter().chain(others.map(|caps| (caps, 8))) {
            for len in (0..=32).step_by(step) {
                let made = info(&"abcdefghijklmnopqrstuvwxyz0123456789"[..len], caps);
                let blob = sealed(&made);
                assert_eq!(opened(&blob).as_ref(), Ok(&made));
                for (bit, changed) in flipped(&blob).enumerate() {
                    let Ok(got) = opened(&changed) else { continue };
                    // All that may differ is the session key, which the holder then does not know.
                    assert_eq!(got.ticket, made.ticket, "{len} bytes of name, bit {bit}, caps {caps:?}");
                }
            }
        }
    }

    #[test]
    fn what_no_monitor_makes_is_refused() {
        let ok = info("x", "allow r");
        let with = |change: &dyn Fn(&mut TicketInfo)| {
            let mut info = ok.clone();
            change(&mut info);
            opened(&sealed(&info)).expect_err("refused")
        };
        let check = |what, change: &dyn Fn(&mut TicketInfo)| {
            assert_eq!(with(change), AuthError::Implausible(what));
        };
        check("it allows everything without caps", &|i| i.ticket.caps = CapsInfo::all());
        check("its caps", &|i| i.ticket.caps = CapsInfo::from_text("allow r, allow \u{7}"));
        check("its caps", &|i| i.ticket.caps = CapsInfo::from_text("allow r and more"));
        check("its caps", &|i| i.ticket.caps.caps = vec![9, 0, 0, 0, b'a'].into());
        check("its holder's name", &|i| i.ticket.name.id = "x\ny".to_owned());
        check("its flags", &|i| i.ticket.flags = 1);
        check("its times", &|i| i.ticket.created.nsec = NANOS);
        check("its times", &|i| i.ticket.expires = Utime::new(NOW.sec - 1, 0));
        check("its times", &|i| i.ticket.expires = NOW.plus(LONGEST_LIFE + Duration::from_nanos(1)));
        check("its times", &|i| i.session_key = CryptoKey::new([1; 16], NOW.plus(Duration::from_secs(61))));
    }

    /// Bytes that decode to the same, but that no monitor writes.
    #[test]
    fn only_the_encoding_of_monitors_is_believed() {
        let made = info("x", "allow r");
        let plain = secret().decrypt(&sealed(&made).blob).expect("decrypts");
        // Versions of envelope, TicketInfo, AuthTicket and CapsInfo; old user id; allow_all (of which false
        // is one byte).
        for at in [0, 9, 28, 52] {
            let mut bytes = plain.to_vec();
            bytes[at] ^= 4;
            let blob = TicketBlob { secret_id: 1, blob: secret().encrypt(&bytes).expect("encrypts") };
            assert_eq!(opened(&blob), Err(AuthError::Implausible("its encoding")), "byte {at}");
        }
        let mut long = plain.to_vec();
        long.push(0);
        let blob = TicketBlob { secret_id: 1, blob: secret().encrypt(&long).expect("encrypts") };
        assert_eq!(opened(&blob), Err(AuthError::Implausible("its encoding")), "trailing bytes");
    }

    #[test]
    fn a_ticket_of_the_future_is_refused() {
        let made = info("x", "allow r");
        assert_eq!(made_before(&made, Utime::new(NOW.sec - 3_599, 0)), Ok(()));
        assert!(made_before(&made, Utime::new(NOW.sec - 3_601, 0)).is_err());
    }
}
