//! Tickets in Ceph's form, for services in whose place a daemon of Ceph's is, and the change from one form to
//! the other.

use crate::common;

use cephx::{
    AuthClient, AuthError, AuthSession, AuthorizerAcceptor, CONNECTION_SECRET_LEN, Renewed, ServiceSecrets,
    TicketForm, Verdict,
};
use common::{Cluster, at, name};
use types::EntityType::{self, Auth, Mds, Mgr, Mon, Osd};

/// A cluster with an administrator and a client that may do nothing at the manager, and whose manager is
/// Ceph's or ours.
fn cluster(mgr: TicketForm) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.add("client.admin", &[("mon", "allow *"), ("mgr", "allow *")]);
    cluster.keys.forms.mgr = mgr;
    cluster
}

fn service(cluster: &Cluster, service: EntityType, form: TicketForm) -> ServiceSecrets {
    ServiceSecrets { form, ..cluster.secrets(service) }
}

/// What a service says to the client's ticket.
fn presented(cluster: &mut Cluster, client: &AuthClient, to: &ServiceSecrets) -> Result<(), AuthError> {
    let mut authorizer = client.authorizer(to.service, at(1), &mut cluster.rng)?;
    let mut acceptor = AuthorizerAcceptor::new();
    let mut say = |payload| acceptor.verify(to, &payload, CONNECTION_SECRET_LEN, at(1), &mut cluster.rng);
    let challenge = match say(authorizer.payload()) {
        Verdict::NeedChallenge(bytes) => bytes,
        Verdict::Refused(why) => return Err(why),
        Verdict::Accepted(peer) => panic!("{peer:?} was not challenged"),
    };
    match say(authorizer.add_challenge(&challenge)?) {
        Verdict::Accepted(peer) => authorizer.verify_reply(&peer.reply).map(|_| ()),
        Verdict::Refused(why) => Err(why),
        Verdict::NeedChallenge(_) => panic!("challenged twice"),
    }
}

/// The service cannot open the ticket, and says so of one in Ceph's form.
fn closed(said: &Result<(), AuthError>, takes: TicketForm) -> bool {
    match takes {
        TicketForm::Sealed => *said == Err(AuthError::OldForm(name("client.admin"))),
        TicketForm::Ceph => matches!(said, Err(AuthError::Undecryptable(_))),
    }
}

#[test]
fn each_service_opens_one_form_and_only_managers_and_mds_may_have_cephs() {
    let mut cluster = cluster(TicketForm::Ceph);
    cluster.keys.forms.mds = TicketForm::Ceph;
    let mut client = cluster.client("client.admin");
    cluster.login(&mut client, 77, 64, 0).expect("logs in");
    let again = cluster_secrets(&cluster);
    for (kind, given) in [
        (Mgr, TicketForm::Ceph),
        (Mds, TicketForm::Ceph),
        (Osd, TicketForm::Sealed),
        (Mon, TicketForm::Sealed),
        (Auth, TicketForm::Sealed),
    ] {
        for form in [TicketForm::Ceph, TicketForm::Sealed] {
            let opens = presented(&mut cluster, &client, &service(&again, kind, form));
            let right = if form == given { opens.is_ok() } else { closed(&opens, form) };
            assert!(right, "{kind} with {form:?}: {opens:?}");
        }
    }
}

/// A second view of the same keys.
fn cluster_secrets(cluster: &Cluster) -> Cluster {
    Cluster { keys: cluster.keys.clone(), rng: common::Seeded(1) }
}

fn unasked(cluster: &mut Cluster, session: &mut AuthSession, client: &mut AuthClient) -> bool {
    let Some(payload) = session.changed_tickets(&cluster.keys, at(1), &mut cluster.rng) else { return false };
    assert_eq!(client.handle_reply(0, &payload, at(1)), Ok(Renewed::Tickets));
    true
}

#[test]
fn a_change_of_form_brings_tickets_unasked_once() {
    let mut cluster = cluster(TicketForm::Sealed);
    let mut client = cluster.client("client.admin");
    let (mut session, ..) = cluster.login(&mut client, 77, 64, 0).expect("logs in");
    assert!(!unasked(&mut cluster, &mut session, &mut client), "nothing has changed");
    for form in [TicketForm::Ceph, TicketForm::Sealed, TicketForm::Ceph] {
        let opener = service(&cluster, Mgr, form);
        cluster.keys.forms.mgr = form;
        assert!(closed(&presented(&mut cluster, &client, &opener), form), "the old ticket");
        assert!(unasked(&mut cluster, &mut session, &mut client));
        assert!(!unasked(&mut cluster, &mut session, &mut client), "once");
        assert_eq!(presented(&mut cluster, &client, &opener), Ok(()));
        let osd = service(&cluster, Osd, TicketForm::Sealed);
        assert_eq!(presented(&mut cluster, &client, &osd), Ok(()), "other tickets stay");
    }
}

#[test]
fn what_was_asked_for_later_is_known_too() {
    let mut cluster = cluster(TicketForm::Sealed);
    let key = cluster.keys.entities[&name("client.admin")].key.clone();
    let mut client = AuthClient::new(name("client.admin"), key, &[Mon]);
    let (mut session, ..) = cluster.login(&mut client, 77, 64, 0).expect("logs in");
    cluster.keys.forms.mgr = TicketForm::Ceph;
    assert!(!unasked(&mut cluster, &mut session, &mut client), "it holds no ticket for managers");
    // The same entity's other connection holds one, and asks with the login's ticket over this session.
    let mut other = cluster.client("client.admin");
    let (mut session, ..) = cluster.login(&mut other, 78, 64, 0).expect("logs in");
    let request = other.renewal_request(at(3000), &mut cluster.rng).expect("a request").expect("is due");
    let reply = session.handle_request(&cluster.keys, &request, None, at(3000), &mut cluster.rng);
    other.handle_reply(0, &reply.expect("granted").payload, at(3000)).expect("tickets");
    cluster.keys.forms.mgr = TicketForm::Sealed;
    let payload = session.changed_tickets(&cluster.keys, at(3000), &mut cluster.rng).expect("tickets");
    assert_eq!(other.handle_reply(0, &payload, at(3000)), Ok(Renewed::Tickets));
}

/// A client that comes back does not ask for what it holds; the form of that is not known here.
#[test]
fn every_further_login_brings_the_tickets_that_may_have_changed() {
    let mut cluster = cluster(TicketForm::Sealed);
    let mut client = cluster.client("client.admin");
    cluster.login(&mut client, 77, 64, 0).expect("logs in");
    cluster.keys.forms.mgr = TicketForm::Ceph;
    let opener = service(&cluster, Mgr, TicketForm::Ceph);
    assert!(closed(&presented(&mut cluster, &client, &opener), TicketForm::Ceph));
    let (mut session, ..) = cluster.login(&mut client, 0, 64, 1).expect("logs in again");
    assert_eq!(presented(&mut cluster, &client, &opener), Ok(()));
    assert!(!unasked(&mut cluster, &mut session, &mut client));
    cluster.keys.forms.mgr = TicketForm::Sealed;
    assert!(unasked(&mut cluster, &mut session, &mut client), "and the session knows of them");
}

#[test]
fn who_was_removed_is_given_nothing() {
    let mut cluster = cluster(TicketForm::Sealed);
    let mut client = cluster.client("client.admin");
    let (mut session, ..) = cluster.login(&mut client, 77, 64, 0).expect("logs in");
    cluster.keys.forms.mgr = TicketForm::Ceph;
    cluster.keys.entities.remove(&name("client.admin"));
    assert!(!unasked(&mut cluster, &mut session, &mut client));
}

#[test]
fn cephs_form_still_needs_the_right_secret_and_what_is_cut_does_not_open() {
    let mut cluster = cluster(TicketForm::Ceph);
    let mut client = cluster.client("client.admin");
    cluster.login(&mut client, 77, 64, 0).expect("logs in");
    let payload = client.authorizer(Mgr, at(1), &mut cluster.rng).expect("a ticket").payload();
    let mut opener = service(&cluster, Mgr, TicketForm::Ceph);
    for n in 0..payload.len() {
        let verdict =
            AuthorizerAcceptor::new().verify(&opener, &payload.slice(..n), 0, at(1), &mut cluster.rng);
        assert!(matches!(verdict, Verdict::Refused(_)), "cut to {n}");
    }
    opener.rotating = cluster.keys.rotating.of(Osd).expect("rotated").clone();
    assert!(closed(&presented(&mut cluster, &client, &opener), TicketForm::Ceph));
}
