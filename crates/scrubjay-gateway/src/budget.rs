//! Limits how many bytes are in memory at once: for the whole process, for each session and for each backend.
//!
//! Code that stores bytes of a client or a backend makes a [`Charge`] for them first, and holds it for as long as it
//! stores them. If there is no memory, the caller decides whether the sender is refused or waits. Code that holds a
//! charge waits for another one only with a deadline, so that no two can wait for each other forever.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Notify;

use crate::session::lock;

/// The key of the limit for the whole process.
pub(crate) const PROCESS_KEY: &str = "limits.max_memory";
/// The key of the limit for one session.
pub(crate) const SESSION_KEY: &str = "limits.max_session_memory";

/// An account that holds no more than this counts as idle: it may always make one more charge, however large.
const IDLE_BYTES: usize = 256 * 1024;
/// A charge up to this size may use the reserve: an ordinary call fits.
const SMALL_BYTES: usize = 64 * 1024;
/// The same for a charge without an account: it is unknown how much else its sender has in memory.
const SMALL_UNOWNED_BYTES: usize = 4 * 1024;
/// The same for the state of a client: it stays as long as the session, so with a higher limit many idle clients could
/// fill the reserve.
const SMALL_STATE_BYTES: usize = 4 * 1024;
/// One part in this many of the process's memory is a reserve for small charges of accounts that hold little: when
/// others have filled the rest, a quiet client can still make calls.
const RESERVE_PART: usize = 16;
/// One backend may use one part in this many, for messages that it does not read or for its lists: a bad backend must
/// not take the memory of the others.
const BACKEND_PART: usize = 8;

/// How much memory may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// By the whole process.
    pub process_bytes_max: usize,
    /// For one session.
    pub session_bytes_max: usize,
}

impl MemoryLimits {
    /// How many times the longest message the process needs: one on its way in, its call, its answer, and others
    /// at the same time.
    pub const MESSAGES_MIN: usize = 8;
    /// How many times the longest message a session needs: a call is in memory twice.
    pub const SESSION_MESSAGES_MIN: usize = 2;
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { process_bytes_max: 128 << 20, session_bytes_max: 32 << 20 }
    }
}

/// What memory is used for. Each use has a limit of its own, so that none takes the memory of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryUse {
    /// Bodies of HTTP requests that are being read.
    Body,
    /// Requests under way, parked ones too.
    Call,
    /// Lines on their way from and to backends.
    Backend,
    /// Lines that a client has not read yet, or may ask for again.
    Delivery,
    /// The facts that a client stated, and its subscriptions.
    State,
    /// The lists of backends, and the owners of names.
    BackendList,
}

impl MemoryUse {
    const COUNT: usize = 6;

    fn bytes_max(self, process_bytes_max: usize) -> usize {
        match self {
            Self::Body | Self::State | Self::BackendList => process_bytes_max / 4,
            Self::Call | Self::Backend | Self::Delivery => process_bytes_max / 2,
        }
    }
}

/// A limit is reached.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "there is no room for {wanted} bytes more in the memory budget of {bytes_max} bytes ({key}): try again later, \
     or raise the limit"
)]
pub struct OverBudget {
    /// The key of the limit.
    pub key: &'static str,
    /// The limit.
    pub bytes_max: usize,
    /// How much more was wanted.
    pub wanted: usize,
}

/// The memory of one process, shared by everything in it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    limits: MemoryLimits,
    used: Mutex<UsedMemory>,
    /// Notified when a charge is given back.
    freed: Notify,
    /// Notified when most of it is used, so that caches are dropped.
    tight: Notify,
}

#[derive(Debug, Default)]
struct UsedMemory {
    total: usize,
    by_use: [usize; MemoryUse::COUNT],
}

/// The memory that is used for one session or one backend.
#[derive(Debug)]
pub struct Account {
    budget: Budget,
    key: &'static str,
    bytes_max: usize,
    used: Mutex<usize>,
}

/// Bytes that are charged to the budget until this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    account: Option<Arc<Account>>,
    what: MemoryUse,
    /// Whether it may use the reserve while it is small.
    is_trusted: bool,
    bytes: usize,
}

impl Budget {
    /// Makes a budget.
    #[must_use]
    pub fn new(limits: MemoryLimits) -> Self {
        let (freed, tight) = (Notify::new(), Notify::new());
        Self(Arc::new(BudgetState { limits, used: Mutex::default(), freed, tight }))
    }

    /// Opens an account for a session.
    #[must_use]
    pub(crate) fn session(&self) -> Arc<Account> {
        self.account(SESSION_KEY, self.0.limits.session_bytes_max)
    }

    /// Opens an account for the messages to a backend, or for its lists.
    #[must_use]
    pub(crate) fn backend(&self) -> Arc<Account> {
        self.account(PROCESS_KEY, self.0.limits.process_bytes_max / BACKEND_PART)
    }

    fn account(&self, key: &'static str, bytes_max: usize) -> Arc<Account> {
        Arc::new(Account { budget: self.clone(), key, bytes_max, used: Mutex::new(0) })
    }

    /// Returns an empty charge, to be resized. If it is not trusted, it may not use the reserve.
    #[must_use]
    pub(crate) fn nothing(&self, what: MemoryUse, is_trusted: bool) -> Charge {
        Charge { budget: self.clone(), account: None, what, is_trusted, bytes: 0 }
    }

    /// Charges bytes that belong to no account.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn charge(&self, what: MemoryUse, bytes: usize) -> Result<Charge, OverBudget> {
        let mut charge = self.nothing(what, true);
        charge.resize(bytes).map(|()| charge)
    }

    /// Waits until most of the memory, or of that for one use, is used.
    pub(crate) async fn tight(&self) {
        self.0.tight.notified().await;
    }

    /// Returns whether most of the memory for a use, or of all memory, is used.
    #[must_use]
    pub(crate) fn is_tight(&self, what: MemoryUse) -> bool {
        let (used, max) = (lock(&self.0.used), self.0.limits.process_bytes_max);
        is_mostly(used.by_use[what as usize], what.bytes_max(max)) || is_mostly(used.total, max)
    }

    /// Returns how many bytes are charged.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        lock(&self.0.used).total
    }

    /// Adds bytes to a use.
    fn take(&self, what: MemoryUse, bytes: usize, may_use_reserve: bool) -> Result<(), OverBudget> {
        let max = self.0.limits.process_bytes_max;
        let mut used = lock(&self.0.used);
        let (total, of_use) = (used.total + bytes, used.by_use[what as usize] + bytes);
        let fits = if may_use_reserve {
            // The limit of the use does not count here: calls of others may have used it up.
            total <= max
        } else {
            total <= max - max / RESERVE_PART && of_use <= what.bytes_max(max)
        };
        if fits {
            (used.total, used.by_use[what as usize]) = (total, of_use);
        }
        let is_tight = !fits || is_mostly(total, max) || is_mostly(of_use, what.bytes_max(max));
        drop(used);
        if is_tight {
            self.0.tight.notify_one();
        }
        if fits { Ok(()) } else { Err(OverBudget { key: PROCESS_KEY, bytes_max: max, wanted: bytes }) }
    }

    fn give_back(&self, what: MemoryUse, bytes: usize) {
        if bytes > 0 {
            let mut used = lock(&self.0.used);
            used.total -= bytes;
            used.by_use[what as usize] -= bytes;
            drop(used);
            // All that wait: they want different amounts, and the first may still not fit.
            self.0.freed.notify_waiters();
        }
    }
}

fn is_mostly(used: usize, max: usize) -> bool {
    used >= max / 4 * 3
}

impl Account {
    /// Charges bytes.
    ///
    /// # Errors
    /// A limit is reached.
    pub(crate) fn charge(self: &Arc<Self>, what: MemoryUse, bytes: usize) -> Result<Charge, OverBudget> {
        let mut charge = self.nothing(what);
        charge.resize(bytes).map(|()| charge)
    }

    /// Charges bytes, and waits until there is memory for them.
    ///
    /// # Errors
    /// There was not enough within `limit`.
    pub(crate) async fn charge_within(
        self: &Arc<Self>,
        what: MemoryUse,
        bytes: usize,
        limit: Duration,
    ) -> Result<Charge, OverBudget> {
        let mut charge = self.nothing(what);
        charge.resize_within(bytes, limit).await.map(|()| charge)
    }

    /// Returns an empty charge, to be resized.
    #[must_use]
    pub(crate) fn nothing(self: &Arc<Self>, what: MemoryUse) -> Charge {
        let budget = self.budget.clone();
        Charge { budget, account: Some(self.clone()), what, is_trusted: true, bytes: 0 }
    }

    /// Returns how many bytes are kept.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        *lock(&self.used)
    }
}

impl Charge {
    /// Changes how many bytes are charged.
    ///
    /// # Errors
    /// A limit is reached; the charge stays as it was.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), OverBudget> {
        if bytes <= self.bytes {
            self.give_back(self.bytes - bytes);
            return Ok(());
        }
        let more = bytes - self.bytes;
        let mut keeps_little = true;
        if let Some(account) = &self.account {
            let mut used = lock(&account.used);
            keeps_little = *used <= IDLE_BYTES;
            // One charge of any size if the account holds little: a message longer than the account's limit, but within
            // `limits.max_message_size`, could otherwise never pass.
            if !keeps_little && *used + more > account.bytes_max {
                return Err(OverBudget { key: account.key, bytes_max: account.bytes_max, wanted: more });
            }
            *used += more;
        }
        let small_max = match (&self.account, self.what) {
            (None, _) => SMALL_UNOWNED_BYTES,
            (Some(_), MemoryUse::State | MemoryUse::BackendList) => SMALL_STATE_BYTES,
            (Some(_), _) => SMALL_BYTES,
        };
        let may_use_reserve = self.is_trusted && keeps_little && bytes <= small_max;
        // The account first and the process second: neither lock is held while the other is taken.
        if let Err(full) = self.budget.take(self.what, more, may_use_reserve) {
            if let Some(account) = &self.account {
                *lock(&account.used) -= more;
            }
            return Err(full);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Changes how many bytes are charged, and waits until there is memory for them.
    ///
    /// # Errors
    /// There was not enough within `limit`.
    pub(crate) async fn resize_within(&mut self, bytes: usize, limit: Duration) -> Result<(), OverBudget> {
        let mut refused = match self.resize(bytes) {
            Ok(()) => return Ok(()),
            Err(full) => full,
        };
        let budget = self.budget.clone();
        let retried = async {
            loop {
                let freed = budget.0.freed.notified();
                tokio::pin!(freed);
                // Enabled before the attempt, so that memory that is freed in between is not missed.
                freed.as_mut().enable();
                match self.resize(bytes) {
                    Ok(()) => return,
                    Err(full) => refused = full,
                }
                freed.await;
            }
        };
        let in_time = tokio::time::timeout(limit, retried).await.is_ok();
        if in_time { Ok(()) } else { Err(refused) }
    }

    /// Takes it off its account. It still counts for the process.
    pub(crate) fn leave_account(&mut self) {
        if let Some(account) = self.account.take() {
            *lock(&account.used) -= self.bytes;
        }
    }

    fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        if let Some(account) = &self.account {
            *lock(&account.used) -= bytes;
        }
        self.budget.give_back(self.what, bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

/// A line that waits to be delivered, with the charge for its memory.
#[derive(Debug)]
pub struct Queued {
    text: String,
    /// `None` for short lines of our own.
    charge: SharedCharge,
}

/// The charge of a line that may be kept in two places: it ends when both have dropped it.
pub(crate) type SharedCharge = Option<Arc<Mutex<Charge>>>;

impl Queued {
    /// Joins a line with the charge for it.
    #[must_use]
    pub fn new(text: String, charge: Charge) -> Self {
        Self { text, charge: Some(Arc::new(Mutex::new(charge))) }
    }

    /// Joins a line with a charge that others hold as well.
    pub(crate) fn sharing(text: String, charge: SharedCharge) -> Self {
        Self { text, charge }
    }

    /// Returns the line and its charge.
    pub(crate) fn into_parts(self) -> (String, SharedCharge) {
        (self.text, self.charge)
    }
}

impl AsRef<[u8]> for Queued {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn budget() -> Budget {
        Budget::new(MemoryLimits { process_bytes_max: 16 * MIB, session_bytes_max: 4 * MIB })
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let budget = budget();
        let session = budget.session();
        let mut charge = session.charge(MemoryUse::Call, MIB).expect("there is room");
        charge.resize(3 * MIB).expect("there is room");
        assert_eq!((budget.used(), session.used()), (3 * MIB, 3 * MIB));
        assert_eq!(session.charge(MemoryUse::Call, 2 * MIB).expect_err("over its limit").key, SESSION_KEY);
        charge.resize(MIB).expect("less is always fine");
        assert_eq!(budget.used(), MIB);
        drop(charge);
        assert_eq!((budget.used(), session.used()), (0, 0));
    }

    #[test]
    fn an_idle_session_may_always_take_one_thing_that_fits_the_process() {
        let budget = budget();
        let session = budget.session();
        let _facts = session.charge(MemoryUse::State, 1000).expect("there is room");
        let _large = session.charge(MemoryUse::Call, 8 * MIB).expect("one thing, however large");
        assert!(session.charge(MemoryUse::Delivery, 1).is_err(), "not a second one");
    }

    #[test]
    fn no_use_takes_the_room_of_the_others_and_the_reserve_is_for_small_things() {
        let budget = budget();
        let hogs: Vec<_> = (0..64).map(|_| budget.session()).collect();
        let kept: Vec<_> = hogs.iter().filter_map(|hog| hog.charge(MemoryUse::Delivery, MIB).ok()).collect();
        assert_eq!(kept.len(), 8, "half of the whole");
        let calls: Vec<_> = hogs.iter().filter_map(|hog| hog.charge(MemoryUse::Call, MIB).ok()).collect();
        assert_eq!(calls.len(), 7, "the last part is a reserve");
        assert!(budget.nothing(MemoryUse::Body, false).resize(1000).is_err(), "no room for strangers");
        assert!(hogs[0].charge(MemoryUse::Call, 1000).is_err(), "nor for who keeps much");
        let quiet = budget.session();
        let call = quiet.charge(MemoryUse::Call, 1000).expect("who keeps nothing can make a call");
        drop((kept, calls, call));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_clients_say_of_themselves_never_takes_the_room_of_calls() {
        let budget = budget();
        let crowd: Vec<_> = (0..1000).map(|_| budget.session()).collect();
        let facts: Vec<_> =
            crowd.iter().filter_map(|one| one.charge(MemoryUse::State, 60_000).ok()).collect();
        assert_eq!(facts.len(), 4 * MIB / 60_000, "a quarter of the whole");
        let modest = budget.session();
        let _facts = modest.charge(MemoryUse::State, 2000).expect("who says little of itself is let in");
        let _call = modest.charge(MemoryUse::Call, 60_000).expect("and can make a call");
    }

    #[tokio::test]
    async fn who_waits_is_served_when_something_is_given_back() {
        let budget = budget();
        let (one, two) = (budget.session(), budget.session());
        let first = one.charge(MemoryUse::Body, 4 * MIB).expect("there is room");
        assert!(two.charge_within(MemoryUse::Body, 4 * MIB, Duration::from_millis(1)).await.is_err());
        let waiting = tokio::spawn(async move {
            two.charge_within(MemoryUse::Body, 4 * MIB, Duration::from_secs(60)).await.is_ok()
        });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waiting.await.expect("it does not panic"));
    }
}
