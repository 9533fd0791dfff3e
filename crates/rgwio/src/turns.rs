//! Whose turn it is: how many plans are carried out at a time, of all clients and of each, and what becomes
//! of a plan whose caller has waited long enough.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use gateway::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use types::Errno;

/// Clones share their bounds.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    /// Of one client, if it is known for whom plans are carried out.
    own: Option<Arc<Semaphore>>,
    clients: Arc<Clients>,
    patience: Duration,
}

/// How many plans each client may have carried out at a time: a quarter of all, so that others find room.
#[derive(Debug)]
struct Clients {
    each: usize,
    known: Mutex<HashMap<Bytes, Weak<Semaphore>>>,
}

impl Clients {
    fn of(&self, client: Bytes) -> Arc<Semaphore> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = known.get(&client).and_then(Weak::upgrade) {
            return own;
        }
        // Clients that ask for nothing now are forgotten, when there are twice as many as before.
        if known.len() == known.capacity() {
            known.retain(|_, own| own.strong_count() > 0);
        }
        let own = Arc::new(Semaphore::new(self.each));
        known.insert(client, Arc::downgrade(&own));
        own
    }
}

/// A plan's turn, until it is dropped.
type Turn = (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit);

impl Turns {
    pub fn new(plans: usize, patience: Duration) -> Self {
        let bound = plans.clamp(1, Semaphore::MAX_PERMITS);
        let clients = Arc::new(Clients { each: bound.div_ceil(4), known: Mutex::default() });
        Self { all: Arc::new(Semaphore::new(bound)), own: None, clients, patience }
    }

    pub fn of_client(&self, client: Bytes) -> Self {
        Self { own: Some(self.clients.of(client)), ..self.clone() }
    }

    async fn turn(&self) -> Result<Turn, Error> {
        let shut = |_| Error::Rados(Errno::ESHUTDOWN);
        let own = match &self.own {
            Some(own) => Some(Arc::clone(own).acquire_owned().await.map_err(shut)?),
            None => None,
        };
        Ok((own, Arc::clone(&self.all).acquire_owned().await.map_err(shut)?))
    }

    /// Does work to its end when its turn comes; `instead` if that is too late, and what comes `after` it if
    /// it ends when nobody waits for it any more.
    pub async fn run<T: Send + 'static, A: Future<Output = ()> + Send>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
        instead: Option<impl Future<Output = ()> + Send + 'static>,
        after: impl FnOnce(T) -> A + Send + 'static,
    ) -> Result<T, Error> {
        let patience = tokio::time::sleep(self.patience);
        tokio::pin!(patience);
        let turn = tokio::select! {
            turn = self.turn() => turn?,
            () = &mut patience => {
                instead.into_iter().for_each(|instead| self.see_to(instead));
                return Err(Error::Rados(Errno::ETIMEDOUT));
            }
        };
        let (tell, mut told) = oneshot::channel();
        tokio::spawn(async move {
            let _turn = turn;
            if let Err(Ok(unwanted)) = tell.send(work.await) {
                after(unwanted).await;
            }
        });
        tokio::select! {
            biased;
            done = &mut told => done.unwrap_or(Err(Error::Unexpected)),
            () = &mut patience => {
                told.close();
                // It may have come just now.
                told.try_recv().unwrap_or(Err(Error::Rados(Errno::ETIMEDOUT)))
            }
        }
    }

    /// Does work when its turn comes, whoever waits.
    fn see_to(&self, work: impl Future<Output = ()> + Send + 'static) {
        let this = self.clone();
        tokio::spawn(async move {
            let Ok(_turn) = this.turn().await else { return };
            work.await;
        });
    }

    /// Does work as long as the caller waits.
    pub async fn read<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let turn = async {
            let _turn = self.turn().await?;
            work.await
        };
        tokio::time::timeout(self.patience, turn).await.unwrap_or(Err(Error::Rados(Errno::ETIMEDOUT)))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, poll_fn, ready};
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    const LATE: Error = Error::Rados(Errno::ETIMEDOUT);

    #[tokio::test]
    async fn what_ends_when_nobody_waits_is_taken_back() {
        let turns = Turns::new(1, Duration::from_millis(1));
        let ((go, wait), (told, done)) = (oneshot::channel::<()>(), oneshot::channel());
        let work = async move { wait.await.map(|()| "made").map_err(|_| Error::Unexpected) };
        let after = |made| async move { told.send(made).unwrap() };
        assert_eq!(turns.run(work, None::<Ready<()>>, after).await, Err(LATE));
        go.send(()).unwrap();
        assert_eq!(done.await, Ok("made"));
    }

    #[tokio::test]
    async fn what_is_waited_for_stays() {
        let turns = Turns::new(1, Duration::from_secs(600));
        let after = |_| async { unreachable!("somebody waits") };
        assert_eq!(turns.run(ready(Ok("made")), None::<Ready<()>>, after).await, Ok("made"));
    }

    #[tokio::test]
    async fn what_never_had_its_turn_is_taken_back_too() {
        let turns = Turns::new(1, Duration::from_millis(1));
        let held = turns.turn().await.unwrap();
        let (told, done) = oneshot::channel();
        let instead = async move { told.send("taken back").unwrap() };
        let work = async { unreachable!("its turn never comes") };
        assert_eq!(turns.run(work, Some(instead), |()| ready(())).await, Err(LATE));
        drop(held);
        assert_eq!(done.await, Ok("taken back"));
    }

    #[tokio::test]
    async fn one_client_leaves_places_to_others() {
        let turns = Turns::new(8, Duration::from_secs(600));
        let (one, again, other) =
            (turns.of_client("a".into()), turns.of_client("a".into()), turns.of_client("b".into()));
        let held = [one.turn().await.unwrap(), again.turn().await.unwrap()];
        let mut third = pin!(one.turn());
        assert!(poll_fn(|cx| Poll::Ready(third.as_mut().poll(cx).is_pending())).await);
        drop(other.turn().await.unwrap());
        drop(held);
        drop(third.await.unwrap());
        // Those that ask for nothing any more are not remembered for ever.
        for n in 0..10_000 {
            drop(turns.of_client(format!("{n}").into()));
        }
        assert!(turns.clients.known.lock().unwrap().len() < 100);
    }
}
