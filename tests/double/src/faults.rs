//! Misbehaviour on demand.

use crate::lock;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What goes wrong with one answer.
#[derive(Debug, Clone)]
pub enum Fault {
    /// No byte of an answer, ever (until the client gives up).
    StallBeforeHeaders,
    /// The headers and this many bytes of the body, then nothing more.
    StallInBody(usize),
    /// The whole answer, `bytes` at a time with `every` in between.
    Trickle {
        /// So many bytes …
        bytes: usize,
        /// … each so often.
        every: Duration,
    },
    /// The connection is reset without an answer.
    ResetBeforeHeaders,
    /// Headers, half the body, reset.
    ResetAfterHeaders,
    /// The connection is closed properly (FIN) without an answer.
    CloseBeforeHeaders,
    /// The request is not carried out; this status is answered, with a `Status` body.
    Status {
        /// HTTP status code.
        code: u16,
        /// `Retry-After` header, in seconds.
        retry_after: Option<u64>,
    },
    /// 200 with a body that is not JSON.
    Garbage,
    /// 200 with this many MiB of JSON.
    Oversized(usize),
    /// Header lines without end.
    EndlessHeaders,
    /// 307 to this place.
    Redirect(String),
    /// A good answer, `Connection: close`, and the connection is closed.
    CloseAfterResponse,
    /// A good answer that promises to keep the connection, which is closed all the same.
    CloseSilently,
    /// Exactly these bytes, then close: for anything that has no name above.
    Raw(Vec<u8>),
}

type Predicate = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// A fault and the requests that it meets.
#[derive(Clone)]
pub struct Rule {
    fault: Fault,
    matches: Vec<Predicate>,
    skip: usize,
    times: usize,
}

impl Rule {
    /// Meets every request, once; narrow it with the methods below.
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Self { fault, matches: Vec::new(), skip: 0, times: 1 }
    }

    /// Only requests with this method.
    #[must_use]
    pub fn method(self, method: &str) -> Self {
        let method = method.to_owned();
        self.when(move |m, _| m == method)
    }

    /// Only requests whose path (with query) contains this.
    #[must_use]
    pub fn path(self, part: &str) -> Self {
        let part = part.to_owned();
        self.when(move |_, path| path.contains(&part))
    }

    /// Only requests for which `predicate(method, path with query)` holds.
    #[must_use]
    pub fn when(mut self, predicate: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> Self {
        self.matches.push(Arc::new(predicate));
        self
    }

    /// So many times (default: once).
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Until `clear`.
    #[must_use]
    pub fn always(self) -> Self {
        self.times(usize::MAX)
    }

    /// Lets the first `n` matching requests pass.
    #[must_use]
    pub fn skip(mut self, n: usize) -> Self {
        self.skip = n;
        self
    }
}

impl From<Fault> for Rule {
    fn from(fault: Fault) -> Self {
        Self::new(fault)
    }
}

/// The faults that are waiting for their request, in order; the first that matches is used.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Vec<Rule>>>);

impl Faults {
    /// Adds a fault.
    pub fn push(&self, rule: impl Into<Rule>) {
        lock(&self.0).push(rule.into());
    }

    /// Removes all faults.
    pub fn clear(&self) {
        lock(&self.0).clear();
    }

    /// How many rules still wait.
    #[must_use]
    pub fn pending(&self) -> usize {
        lock(&self.0).len()
    }

    /// The fault for this request.
    pub(crate) fn take(&self, method: &str, path: &str) -> Option<Fault> {
        let mut rules = lock(&self.0);
        let index = rules.iter_mut().position(|rule| {
            let is_hit = rule.matches.iter().all(|hit| hit(method, path));
            if is_hit && rule.skip > 0 {
                rule.skip -= 1;
                return false;
            }
            is_hit
        })?;
        rules[index].times -= 1;
        match rules[index].times {
            0 => Some(rules.remove(index).fault),
            _ => Some(rules[index].fault.clone()),
        }
    }
}
