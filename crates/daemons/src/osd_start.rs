//! What comes before an OSD's boot: it asks whether the monitors are Loligo's, and then tells them its place
//! in the CRUSH map and the class of its device.
//!
//! Source: OSD::update_crush_location, OSD::update_crush_device_class, src/crush/CrushLocation.cc.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use admin::options::Values;
use messages::Message;
use messages::mon::{MMonCommand, MMonCommandAck};
use monitor::Whose;
use serde_json::{Value, json};
use types::{Errno, Fsid, OsdId};

/// Why an OSD of Loligo's ends where the monitors are Ceph's.
const OSDS_APART: &str = "the monitors are Ceph's: its OSDs do not replicate with ours";
/// A monitor that has no quorum answers late, one that was replaced never.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// In the answer of monitors to which a device has another class already, which an operator may have given
/// it.
///
/// Source: CrushWrapper::update_device_class, src/crush/CrushWrapper.cc.
const HAS_A_CLASS: &str = "has already bound to class";
/// A device is never too small for a weight.
const LEAST_WEIGHT: f64 = 0.000_01;

/// What this host knows of the OSD's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartPlace {
    /// The CRUSH bucket that stands for the host.
    pub host: String,
    /// `ssd`, `hdd`, `nvme`.
    pub class: String,
}

/// The commands that come before the boot, one after the other.
#[derive(Debug)]
pub(crate) struct Startup {
    osd: OsdId,
    fsid: Fsid,
    place: Option<StartPlace>,
    device_bytes: u64,
    /// Options of the configuration file.
    local: BTreeMap<String, String>,
    /// Those of the monitors, once they are here.
    given: Option<BTreeMap<String, String>>,
    stage: Stage,
    asked: Duration,
    /// The first attempt at the command under way, and the newest.
    first_tid: u64,
    tid: u64,
}

#[derive(Debug, PartialEq)]
enum Stage {
    /// The monitors have not said whether they are Loligo's or Ceph's.
    Whose,
    /// The options that the monitors hold are not here yet.
    Options,
    Commands(VecDeque<Value>),
    Done,
}

/// What is to be done next.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    Wait,
    /// The monitors could not do it now, for this reason; it is asked for again after a while.
    Later(String),
    Send {
        tid: u64,
        msg: Message,
    },
    /// The OSD may boot.
    Boot,
    /// The OSD must not boot, for this reason.
    Fail(String),
}

/// The tids of these commands begin here, above those of all other requests to the monitors.
const FIRST_TID: u64 = 1 << 40;

impl Startup {
    pub fn new(
        osd: OsdId,
        fsid: Fsid,
        device_bytes: u64,
        place: Option<StartPlace>,
        local: BTreeMap<String, String>,
    ) -> Self {
        Self {
            osd,
            fsid,
            place,
            device_bytes,
            local,
            given: None,
            stage: Stage::Whose,
            asked: Duration::ZERO,
            first_tid: FIRST_TID + 1,
            tid: FIRST_TID,
        }
    }

    /// A session with a monitor stands (again).
    pub fn connected(&mut self, now: Duration) -> Step {
        match self.stage {
            Stage::Done => Step::Boot,
            Stage::Options => Step::Wait,
            Stage::Whose | Stage::Commands(_) => self.ask(now),
        }
    }

    /// The monitors' options.
    pub fn options(&mut self, now: Duration, given: &BTreeMap<String, String>) -> Step {
        self.given = Some(given.clone());
        if self.stage == Stage::Options { self.go_on(now) } else { Step::Wait }
    }

    /// The monitors are Loligo's: the commands follow when the options are known.
    fn go_on(&mut self, now: Duration) -> Step {
        let Some(place) = &self.place else {
            self.stage = Stage::Done;
            return Step::Boot;
        };
        let Some(given) = &self.given else {
            self.stage = Stage::Options;
            return Step::Wait;
        };
        let mut values = Values::new(format!("osd.{}", self.osd), &self.local);
        values.set_from_mon(given);
        self.stage = Stage::Commands(self.commands(place, &values));
        self.ask(now)
    }

    fn commands(&self, start: &StartPlace, values: &Values) -> VecDeque<Value> {
        let is_on = |name: &str| values.get(name).as_deref() == Some("true");
        let mut out = VecDeque::new();
        if is_on("osd_crush_update_on_start") {
            let given = values.float("osd_crush_initial_weight");
            let own = (self.device_bytes as f64 / (1u64 << 40) as f64).max(LEAST_WEIGHT);
            let weight = if given >= 0.0 { given } else { own };
            let place = location(&values.get("crush_location").unwrap_or_default(), &start.host);
            out.push_back(json!({
                "prefix": "osd crush create-or-move", "id": self.osd.0, "weight": weight, "args": place,
            }));
        }
        if is_on("osd_class_update_on_start") && !start.class.is_empty() {
            out.push_back(json!({
                "prefix": "osd crush set-device-class", "class": start.class,
                "ids": [self.osd.0.to_string()],
            }));
        }
        let (key, value) = Whose::MARK;
        for command in out.iter_mut().filter_map(Value::as_object_mut) {
            command.insert(key.to_owned(), value.into());
        }
        out
    }

    /// The next command, or the boot.
    fn ask(&mut self, now: Duration) -> Step {
        let command = match &self.stage {
            Stage::Whose => Whose::QUESTION.to_owned(),
            Stage::Commands(commands) => match commands.front() {
                Some(command) => command.to_string(),
                None => {
                    self.stage = Stage::Done;
                    return Step::Boot;
                }
            },
            Stage::Options | Stage::Done => return Step::Wait,
        };
        self.asked = now;
        self.tid += 1;
        let msg = MMonCommand { fsid: self.fsid, cmd: vec![command], ..MMonCommand::default() };
        Step::Send { tid: self.tid, msg: msg.into() }
    }

    pub fn answer(&mut self, now: Duration, tid: u64, ack: &MMonCommandAck) -> Step {
        // The answer to any attempt counts: all attempts ask for the same, and slow monitors may answer the
        // first after the second was sent.
        if !(self.first_tid..=self.tid).contains(&tid) {
            return Step::Wait;
        }
        match &mut self.stage {
            Stage::Whose => self.told_whose(now, ack),
            Stage::Commands(commands) => match Errno(ack.result.saturating_neg()) {
                errno if errno == Errno(0) || errno == Errno::EBUSY && ack.status.contains(HAS_A_CLASS) => {
                    commands.pop_front();
                    self.first_tid = self.tid + 1;
                    self.ask(now)
                }
                Errno::ENOENT => Step::Fail(format!(
                    "the cluster {} has no osd.{}: it was purged, or never registered (loligo osd --new does)",
                    self.fsid, self.osd
                )),
                errno => {
                    refused(errno, format!("refuse its place in the CRUSH map: {} ({errno})", ack.status))
                }
            },
            Stage::Options | Stage::Done => Step::Wait,
        }
    }

    fn told_whose(&mut self, now: Duration, ack: &MMonCommandAck) -> Step {
        match Whose::of_answer(ack.result, &ack.output) {
            Ok(Whose::Ours) => {
                self.first_tid = self.tid + 1;
                self.go_on(now)
            }
            Ok(Whose::Ceph) => Step::Fail(OSDS_APART.to_owned()),
            Err(errno) => refused(errno, format!("do not say whose they are: {} ({errno})", ack.status)),
        }
    }

    pub fn tick(&mut self, now: Duration) -> Step {
        match &self.stage {
            Stage::Whose if self.tid < self.first_tid => Step::Wait,
            Stage::Whose | Stage::Commands(_) if now.saturating_sub(self.asked) >= ASK_AGAIN => self.ask(now),
            _ => Step::Wait,
        }
    }
}

/// What a refusal of the monitors comes to. It lasts where it is about the command itself or who sends it. A
/// bug of a monitor (EIO), too many requests there (EBUSY), a store without room and all else may pass, and
/// one such answer keeps no OSD out: `tick` asks again.
fn refused(errno: Errno, why: String) -> Step {
    let why = format!("the monitors {why}");
    match errno {
        Errno::EINVAL | Errno::EACCES | Errno::EPERM | Errno::EEXIST | Errno::ERANGE => Step::Fail(why),
        Errno::ENAMETOOLONG | Errno::E2BIG | Errno::EOPNOTSUPP | Errno::EDOM => Step::Fail(why),
        _ => Step::Later(why),
    }
}

/// `crush_location` as words for a command, with the host and the root that it does not name.
fn location(text: &str, host: &str) -> Vec<String> {
    let words = text.split([' ', '\t', ',', ';']).filter(|w| w.contains('='));
    let mut out: Vec<String> = words.map(str::to_owned).collect();
    for (kind, name) in [("host", host), ("root", "default")] {
        if !out.iter().any(|w| w.starts_with(&format!("{kind}="))) {
            out.push(format!("{kind}={name}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn startup(local: &[(&str, &str)]) -> Startup {
        let local = local.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let place = StartPlace { host: "h1".to_owned(), class: "ssd".to_owned() };
        Startup::new(OsdId(3), Fsid::default(), 1 << 39, Some(place), local)
    }

    fn sent(step: Step) -> (u64, Value) {
        match step {
            Step::Send { tid, msg: Message::MonCommand(m) } => {
                (tid, serde_json::from_str(&m.cmd.concat()).expect("JSON"))
            }
            other => panic!("no command: {other:?}"),
        }
    }

    const OURS: &str = "ceph version 16.2.15 (loligo 0.1.0) pacific (stable)";

    fn version(text: &'static str) -> MMonCommandAck {
        MMonCommandAck { output: text.into(), ..MMonCommandAck::default() }
    }

    /// Has the monitors say that they are Loligo's; gives the step that follows.
    fn on_ours(s: &mut Startup) -> Step {
        let (tid, question) = sent(s.connected(NOW));
        assert_eq!(question, json!({"prefix": "version"}));
        s.answer(NOW, tid, &version(OURS))
    }

    fn ack(errno: Errno) -> MMonCommandAck {
        MMonCommandAck { result: -errno.0, status: "words".to_owned(), ..MMonCommandAck::default() }
    }

    #[test]
    fn place_and_class_go_before_the_boot() {
        let mut s = startup(&[("crush_location", "rack=r1")]);
        assert_eq!(on_ours(&mut s), Step::Wait, "the monitors' options come first");
        let (tid, place) = sent(s.options(NOW, &BTreeMap::new()));
        let want = json!({"prefix": "osd crush create-or-move", "id": 3, "weight": 0.5,
                          "args": ["rack=r1", "host=h1", "root=default"], "by": "loligo"});
        assert_eq!(place, want);
        assert_eq!(s.answer(NOW, tid + 1, &ack(Errno(0))), Step::Wait, "somebody else's answer");
        let (tid, class) = sent(s.answer(NOW, tid, &ack(Errno(0))));
        let want =
            json!({"prefix": "osd crush set-device-class", "class": "ssd", "ids": ["3"], "by": "loligo"});
        assert_eq!(class, want);
        let text =
            "osd.3 has already bound to class 'hdd', can not reset class to 'ssd'; use 'ceph osd crush ...";
        let has_one = MMonCommandAck { status: text.to_owned(), ..ack(Errno::EBUSY) };
        assert_eq!(s.answer(NOW, tid, &has_one), Step::Boot);
        assert_eq!(s.connected(NOW), Step::Boot, "a later session needs nothing of this");
    }

    #[test]
    fn options_say_what_is_told() {
        let off = [("osd_crush_update_on_start".to_owned(), "false".to_owned())].into();
        let mut s = startup(&[("osd_class_update_on_start", "false")]);
        assert_eq!(s.options(NOW, &off), Step::Wait, "whose the monitors are comes first");
        assert_eq!(on_ours(&mut s), Step::Boot);
        let mut s = startup(&[("osd_crush_initial_weight", "0")]);
        assert_eq!(on_ours(&mut s), Step::Wait);
        assert_eq!(sent(s.options(NOW, &BTreeMap::new())).1["weight"], json!(0.0));
        let mut s = Startup::new(OsdId(3), Fsid::default(), 1, None, BTreeMap::new());
        assert_eq!(on_ours(&mut s), Step::Boot, "without a place there is nothing to tell");
    }

    #[test]
    fn lost_answers_are_asked_for_again_and_refusals_end_it() {
        let mut s = startup(&[]);
        assert_eq!(on_ours(&mut s), Step::Wait);
        let (first, _) = sent(s.options(NOW, &BTreeMap::new()));
        assert_eq!(s.tick(NOW + Duration::from_secs(1)), Step::Wait);
        let (second, _) = sent(s.tick(NOW + ASK_AGAIN));
        let (third, _) = sent(s.connected(NOW + ASK_AGAIN));
        assert!(first < second && second < third);
        // Monitors that take longer than the wait answer the first attempt last.
        let (class, _) = sent(s.answer(NOW + ASK_AGAIN, first, &ack(Errno(0))));
        assert!(class > third);
        assert_eq!(s.answer(NOW, second, &ack(Errno(0))), Step::Wait, "that command is done");
        let mut s = startup(&[]);
        assert_eq!(on_ours(&mut s), Step::Wait);
        let (third, _) = sent(s.options(NOW, &BTreeMap::new()));
        let Step::Fail(why) = s.answer(NOW, third, &ack(Errno::ENOENT)) else { panic!("it goes on") };
        assert!(why.contains("no osd.3"), "{why}");
    }

    #[test]
    fn what_may_pass_is_asked_for_again_and_what_lasts_ends_it() {
        let passing = [Errno::EIO, Errno::EBUSY, Errno::EAGAIN, Errno::ETIMEDOUT, Errno::ENOSPC, Errno(71)];
        for errno in passing {
            let mut s = startup(&[]);
            let mut step = s.connected(NOW);
            // Whose they are, the place, the class.
            for done in [version(OURS), ack(Errno(0)), ack(Errno(0))] {
                let (tid, first) = sent(step);
                let Step::Later(why) = s.answer(NOW, tid, &ack(errno)) else { panic!("{errno} counts") };
                assert!(why.contains("words"), "{why}");
                assert_eq!(s.tick(NOW + ASK_AGAIN / 2), Step::Wait, "there is a pause");
                let (tid, second) = sent(s.tick(NOW + ASK_AGAIN));
                assert_eq!(first, second);
                step = s.answer(NOW, tid, &done);
                if step == Step::Wait {
                    step = s.options(NOW, &BTreeMap::new());
                }
            }
            assert_eq!(step, Step::Boot);
        }
        for errno in [Errno::EINVAL, Errno::EACCES, Errno::EPERM, Errno::E2BIG] {
            let mut s = startup(&[]);
            assert_eq!(on_ours(&mut s), Step::Wait);
            let (tid, _) = sent(s.options(NOW, &BTreeMap::new()));
            let Step::Fail(why) = s.answer(NOW, tid, &ack(errno)) else { panic!("{errno} does not end it") };
            assert!(why.contains("words"), "{why}");
        }
    }

    #[test]
    fn nothing_is_told_to_monitors_of_cephs_or_to_those_that_do_not_say() {
        let theirs = "ceph version 16.2.15 (618f440892089921c3e944a991122ddc44e60516) pacific (stable)";
        let mut s = startup(&[]);
        assert_eq!(s.tick(NOW), Step::Wait, "before there is a session");
        assert_eq!(s.options(NOW, &BTreeMap::new()), Step::Wait);
        let (lost, _) = sent(s.connected(NOW));
        let (tid, question) = sent(s.tick(NOW + ASK_AGAIN));
        assert_eq!(question, json!({"prefix": "version"}));
        assert!(matches!(s.answer(NOW, lost, &ack(Errno::EAGAIN)), Step::Later(_)));
        assert_eq!(s.answer(NOW, tid, &version(theirs)), Step::Fail(OSDS_APART.to_owned()));
        let mut s = startup(&[]);
        let (tid, _) = sent(s.connected(NOW));
        let Step::Fail(why) = s.answer(NOW, tid, &ack(Errno::EPERM)) else { panic!("it goes on") };
        assert!(why.contains("words"), "{why}");
    }
}
