//! Subscriptions to maps: what is wanted, and what of it the monitor has been asked.

use std::collections::BTreeMap;

use messages::mon::{MMonSubscribe, SubscribeItem};

/// Source: MonSub in src/mon/MonSub.cc.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Subs {
    new: BTreeMap<&'static str, SubscribeItem>,
    sent: BTreeMap<&'static str, SubscribeItem>,
}

impl Subs {
    /// Wants a map from `start` on; whether that is news for the monitor.
    pub(crate) fn want(&mut self, what: &'static str, start: u64, flags: u8) -> bool {
        let item = SubscribeItem { start, flags };
        let known = self.new.get(what).or(self.sent.get(what)) == Some(&item);
        if !known {
            self.new.insert(what, item);
        }
        !known
    }

    /// A map of version `have` came.
    pub(crate) fn got(&mut self, what: &'static str, have: u64) {
        for table in [&mut self.new, &mut self.sent] {
            let Some(item) = table.get_mut(what).filter(|i| i.start <= have) else { continue };
            if item.is_onetime() {
                table.remove(what);
            } else {
                item.start = have.saturating_add(1);
            }
        }
    }

    /// The message for what is new; `None` when nothing is.
    pub(crate) fn renew(&mut self) -> Option<MMonSubscribe> {
        if self.new.is_empty() {
            return None;
        }
        let what = self.new.iter().map(|(what, item)| ((*what).to_owned(), *item)).collect();
        self.sent.append(&mut self.new);
        Some(MMonSubscribe { what, hostname: String::new() })
    }

    /// A new session knows nothing of what the old one was asked.
    pub(crate) fn forget_sent(&mut self) {
        let newer = std::mem::take(&mut self.new);
        self.new = std::mem::take(&mut self.sent);
        self.new.extend(newer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_update_ends_a_onetime_wish_and_a_new_session_asks_again() {
        let mut s = Subs::default();
        assert!(s.want("osdmap", 5, SubscribeItem::ONETIME));
        assert!(!s.want("osdmap", 5, SubscribeItem::ONETIME), "asked already");
        assert!(s.want("monmap", 1, 0));
        assert_eq!(s.renew().map(|m| m.what.len()), Some(2));
        assert_eq!(s.renew(), None);
        s.got("osdmap", 4);
        assert!(!s.want("osdmap", 5, SubscribeItem::ONETIME), "still waits for 5");
        s.got("osdmap", 9);
        s.got("monmap", 3);
        s.forget_sent();
        let again = s.renew().expect("monmap");
        assert_eq!(again.what, BTreeMap::from([("monmap".to_owned(), SubscribeItem { start: 4, flags: 0 })]));
    }
}
