//! Operations as steps: requests, and what goes on with their replies.
//!
//! 1. Requests of one step do not depend on each other, and may be performed at the same time.
//! 2. A plan that is given up between two steps has done what its earlier requests did, and no more.
//! 3. A plan that waits for others says for how long: whoever performs it has the clock.

use std::time::Duration;

use types::Errno;

use crate::{Error, Reply, Request};

type Replies = Vec<Result<Reply, Errno>>;
type Next<T> = Box<dyn FnOnce(Replies) -> Plan<T> + Send>;

pub enum Plan<T> {
    Done(Result<T, Error>),
    /// Goes on with one reply for each request.
    Ask(Vec<Request>, Next<T>),
    /// Goes on after a time.
    Wait(Duration, Box<dyn FnOnce() -> Plan<T> + Send>),
}

/// Whoever performs requests at once: a cluster in memory, or a client that waits.
pub trait Rados {
    fn perform(&mut self, request: Request) -> Result<Reply, Errno>;

    /// Lets time pass.
    fn wait(&mut self, time: Duration);
}

impl<T: Send + 'static> Plan<T> {
    pub fn ok(value: T) -> Self {
        Self::Done(Ok(value))
    }

    pub fn failed(error: Error) -> Self {
        Self::Done(Err(error))
    }

    /// Goes on with the result, whatever it is.
    pub fn then<U: Send + 'static>(
        self,
        next: impl FnOnce(Result<T, Error>) -> Plan<U> + Send + 'static,
    ) -> Plan<U> {
        match self {
            Self::Done(result) => next(result),
            Self::Ask(requests, own) => Plan::Ask(requests, Box::new(move |replies| own(replies).then(next))),
            Self::Wait(time, own) => Plan::Wait(time, Box::new(move || own().then(next))),
        }
    }

    /// Goes on unless it failed.
    pub fn and_then<U: Send + 'static>(self, next: impl FnOnce(T) -> Plan<U> + Send + 'static) -> Plan<U> {
        self.then(|result| match result {
            Ok(value) => next(value),
            Err(e) => Plan::failed(e),
        })
    }

    /// Looks at the result.
    pub fn try_map<U: Send + 'static>(
        self,
        map: impl FnOnce(T) -> Result<U, Error> + Send + 'static,
    ) -> Plan<U> {
        self.and_then(|value| Plan::Done(map(value)))
    }

    /// Takes one error for another.
    pub fn when(self, from: Error, to: Error) -> Self {
        self.then(move |result| Self::Done(result.map_err(|e| if e == from { to } else { e })))
    }

    /// Does it to its end.
    pub fn run(self, rados: &mut impl Rados) -> Result<T, Error> {
        let mut plan = self;
        loop {
            match plan {
                Self::Done(result) => return result,
                Self::Ask(requests, next) => {
                    plan = next(requests.into_iter().map(|request| rados.perform(request)).collect());
                }
                Self::Wait(time, next) => {
                    rados.wait(time);
                    plan = next();
                }
            }
        }
    }
}

impl Plan<()> {
    pub fn wait(time: Duration) -> Self {
        Self::Wait(time, Box::new(|| Self::ok(())))
    }
}

impl Plan<Vec<Result<Reply, Errno>>> {
    /// Requests that are performed beside each other, whatever becomes of each.
    pub fn ask_each(requests: Vec<Request>) -> Self {
        if requests.is_empty() {
            return Self::ok(Vec::new());
        }
        Self::Ask(requests, Box::new(Self::ok))
    }
}

impl Plan<Reply> {
    pub fn ask(request: Request) -> Self {
        Plan::ask_each(vec![request])
            .try_map(|replies| Ok(replies.into_iter().next().ok_or(Error::Unexpected)??))
    }
}

impl Plan<Vec<Reply>> {
    /// Requests beside each other; the first failure is the result's.
    pub fn ask_all(requests: Vec<Request>) -> Self {
        Plan::ask_each(requests)
            .try_map(|replies| replies.into_iter().map(|reply| reply.map_err(Error::from)).collect())
    }
}

/// ENOENT as nothing.
pub(crate) fn optional<T: Send + 'static>(plan: Plan<T>) -> Plan<Option<T>> {
    plan.then(|result| match result {
        Ok(value) => Plan::ok(Some(value)),
        Err(Error::Rados(Errno::ENOENT)) => Plan::ok(None),
        Err(e) => Plan::failed(e),
    })
}
