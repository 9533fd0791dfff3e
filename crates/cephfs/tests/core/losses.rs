//! What could not be written back: it waits for a capability, and who hears of it when it is lost.

use cephfs::{Answer, Call, Handle, Node, Ticket};
use messages::fs::{CapOp, Caps, FsOp, MClientCaps, MClientSession, OpenArgs, RequestArgs, SessionOp};
use types::Errno;

use crate::world::{ALL, FILE, World, file, name};

/// A file that was written to, with nothing flushed yet.
fn written() -> (World, Handle) {
    let (mut w, handle) = World::opened(ALL);
    write(&mut w, handle);
    (w, handle)
}

fn write(w: &mut World, handle: Handle) {
    let ticket = w.submit(Call::Write { handle, offset: Some(0), data: name("hello") });
    let objects = w.objects();
    w.objects_done(objects);
    assert_eq!(w.done(ticket), Ok(Answer::Written(5)));
}

/// The rank gives the file away, and nobody says to whom.
fn cap_goes(w: &mut World) {
    let export = w.caps(CapOp::EXPORT, Caps::NONE);
    w.say(0, export);
}

fn ack(w: &mut World, tid: u64) {
    let ack = w.caps(CapOp::FLUSH_ACK, ALL);
    w.say(tid, MClientCaps { dirty: Caps::FILE_WR, ..ack });
}

/// Answers the request by which the client opens the file anew.
fn renewed(w: &mut World) {
    let (tid, m) = w.request();
    let RequestArgs::Open(args) = &m.args else { panic!("{m:?}") };
    assert_eq!((m.op, args.flags & 3), (FsOp::OPEN, OpenArgs::RDWR), "what is dirty is written");
    let mut fresh = file(ALL);
    (fresh.cap.cap_id, fresh.cap.seq, fresh.size) = (200, 1, 0);
    w.reply(tid, FsOp::OPEN, true, None, Some(fresh));
}

#[test]
fn what_has_no_capability_is_flushed_with_a_new_one() {
    for call in [None, Some(Call::Sync), Some(Call::Unmount)] {
        let (mut w, handle) = written();
        cap_goes(&mut w);
        let is_unmount = call == Some(Call::Unmount);
        let ticket = w.submit(call.unwrap_or(Call::Fsync { handle }));
        assert!(w.is_done(ticket).is_none(), "nothing of it is safe");
        if is_unmount {
            // The handle is closed by now.
            let (tid, m) = w.request();
            assert_eq!(m.op, FsOp::OPEN);
            w.reply(tid, FsOp::OPEN, true, None, Some(file(ALL)));
        } else {
            renewed(&mut w);
        }
        let said = w.caps_said();
        let (tid, m) = said.iter().find(|(_, m)| !m.dirty.is_empty()).expect("it is flushed");
        assert_eq!((m.dirty, m.size), (Caps::FILE_WR, 5));
        assert!(w.is_done(ticket).is_none());
        ack(&mut w, *tid);
        if is_unmount {
            w.say(0, MClientSession { op: SessionOp::CLOSE, ..Default::default() });
        }
        assert_eq!(w.done(ticket), Ok(Answer::Done));
    }
}

/// A flush under way whose rank gives the file away goes to whoever has it next.
#[test]
fn a_flush_goes_along_with_the_file() {
    let (mut w, handle) = written();
    let fsync = w.submit(Call::Fsync { handle });
    let (tid, _) = w.caps_said().remove(0);
    cap_goes(&mut w);
    let sync = w.submit(Call::Sync);
    assert!(w.is_done(fsync).is_none() && w.is_done(sync).is_none());
    renewed(&mut w);
    let said = w.caps_said();
    let again = said.iter().find(|(t, _)| *t == tid).expect("it is sent again");
    assert_eq!((again.1.dirty, again.1.size, again.1.cap_id), (Caps::FILE_WR, 5, 200));
    ack(&mut w, tid);
    assert_eq!(w.done(fsync), Ok(Answer::Done));
    assert_eq!(w.done(sync), Ok(Answer::Done));
}

/// Nothing is left to flush with when the file cannot be opened any more.
#[test]
fn what_cannot_be_opened_anew_is_lost() {
    let (mut w, handle) = written();
    cap_goes(&mut w);
    let fsync = w.submit(Call::Fsync { handle });
    let (tid, _) = w.request();
    w.refuse(tid, FsOp::OPEN, Errno::ESTALE);
    assert_eq!(w.done(fsync), Err(Errno::ESTALE));
    let again = w.submit(Call::Fsync { handle });
    assert_eq!(w.done(again), Ok(Answer::Done));
}

fn lose(w: &mut World) {
    w.say(0, MClientSession { op: SessionOp::CLOSE, ..Default::default() });
}

fn does(w: &mut World, call: Call) -> Result<Answer, Errno> {
    let ticket: Ticket = w.submit(call);
    w.done(ticket)
}

fn open(w: &mut World) -> Handle {
    let ticket = w.submit(Call::Open { node: Node::head(FILE), flags: OpenArgs::RDWR });
    let (tid, _) = w.request();
    w.reply(tid, FsOp::OPEN, true, None, Some(file(ALL)));
    let Ok(Answer::Opened { handle, .. }) = w.done(ticket) else { panic!("it is open") };
    handle
}

/// Each handle hears of a loss once, and so does the next sync.
#[test]
fn every_handle_and_the_next_sync_hear_of_a_loss() {
    let (mut w, first) = World::opened(ALL);
    let second = open(&mut w);
    write(&mut w, first);
    lose(&mut w);
    for handle in [first, second] {
        assert_eq!(does(&mut w, Call::Fsync { handle }), Err(Errno::EIO));
        assert_eq!(does(&mut w, Call::Fsync { handle }), Ok(Answer::Done));
    }
    assert_eq!(does(&mut w, Call::Sync), Err(Errno::EIO));
    assert_eq!(does(&mut w, Call::Sync), Ok(Answer::Done));
}

#[test]
fn an_unmount_tells_of_what_nobody_heard() {
    let (mut w, _) = written();
    lose(&mut w);
    assert_eq!(does(&mut w, Call::Unmount), Err(Errno::EIO));
    w.client.assert_idle();
}

/// A handle that is opened after the loss hears of it if nobody did before.
#[test]
fn a_loss_waits_for_the_next_handle() {
    let (mut w, handle) = written();
    assert_eq!(does(&mut w, Call::Close { handle }), Ok(Answer::Done));
    lose(&mut w);
    let ticket = w.submit(Call::Open { node: Node::head(FILE), flags: OpenArgs::RDWR });
    w.open_session(0);
    let (tid, _) = w.request();
    w.reply(tid, FsOp::OPEN, true, None, Some(file(ALL)));
    let Ok(Answer::Opened { handle, .. }) = w.done(ticket) else { panic!("it is open") };
    assert_eq!(does(&mut w, Call::Fsync { handle }), Err(Errno::EIO));
    let later = open(&mut w);
    assert_eq!(does(&mut w, Call::Fsync { handle: later }), Ok(Answer::Done));
}
