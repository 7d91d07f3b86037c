//! Synthetic addresses: one for each name that policy could permit, one sink for all others.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::Ipv4Net;
use lru::LruCache;
use understudy_policies::HostName;

/// Names that a container can have in use at once; the least recently used one makes room.
const CAPACITY: u32 = 4096;

/// Offsets into the range. Names start behind them.
const NAMESERVER: u32 = 1;
const SINK: u32 = 2;
const FIRST_NAME: u32 = 256;

/// What a destination address stands for in one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// This name was looked up and answered with this address.
    Name(HostName),
    /// The address that all names get which policy cannot permit.
    Sink,
    /// In the synthetic range, and nothing was looked up for it (or too long ago).
    NeverLookedUp,
    /// An address of the real world: nobody looked up a name for it.
    Literal,
}

/// The range that synthetic addresses come from. Its default is a block that was never announced on the Internet and
/// that fetch tools take for public; documentation and shared ranges fail their guards against SSRF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyntheticRange(Ipv4Net);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the range must be /18 or larger, to hold {CAPACITY} names")]
pub struct RangeTooSmall;

impl SyntheticRange {
    pub fn new(net: Ipv4Net) -> Result<Self, RangeTooSmall> {
        if net.prefix_len() > 18 { Err(RangeTooSmall) } else { Ok(Self(net.trunc())) }
    }

    pub fn nameserver(self) -> Ipv4Addr {
        self.at(NAMESERVER)
    }

    pub fn sink(self) -> Ipv4Addr {
        self.at(SINK)
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        self.0.contains(&address)
    }

    fn at(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.0.network()).wrapping_add(offset))
    }

    fn offset(self, address: Ipv4Addr) -> u32 {
        u32::from(address).wrapping_sub(u32::from(self.0.network()))
    }
}

impl Default for SyntheticRange {
    fn default() -> Self {
        Self(Ipv4Net::new_assert(Ipv4Addr::new(28, 0, 0, 0), 15))
    }
}

/// One container's names and their addresses.
#[derive(Debug)]
pub struct SyntheticNames {
    range: SyntheticRange,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    slots: LruCache<HostName, u32>,
    names: Vec<HostName>,
}

impl Default for SyntheticNames {
    fn default() -> Self {
        Self::new(SyntheticRange::default())
    }
}

impl SyntheticNames {
    pub fn new(range: SyntheticRange) -> Self {
        let capacity = NonZeroUsize::new(CAPACITY as usize).unwrap_or(NonZeroUsize::MIN);
        // Unbounded in the crate's terms: it would otherwise allocate for all 4096 names at once.
        let mut slots = LruCache::unbounded();
        slots.resize(capacity);
        Self { range, table: Mutex::new(Table { slots, names: Vec::new() }) }
    }

    pub fn range(&self) -> SyntheticRange {
        self.range
    }

    /// The address of `name`, the same one for as long as the name is in use.
    pub fn address(&self, name: &HostName) -> Ipv4Addr {
        let mut table = self.table();
        let slot = match table.slots.get(name) {
            Some(&slot) => slot,
            None => table.assign(name),
        };
        self.range.at(FIRST_NAME + slot)
    }

    pub fn origin(&self, address: IpAddr) -> Origin {
        let IpAddr::V4(address) = address else { return Origin::Literal };
        if !self.range.contains(address) {
            return Origin::Literal;
        }
        if address == self.range.sink() {
            return Origin::Sink;
        }
        let Some(slot) = self.range.offset(address).checked_sub(FIRST_NAME) else {
            return Origin::NeverLookedUp;
        };
        let mut table = self.table();
        let name = usize::try_from(slot).ok().and_then(|slot| table.names.get(slot).cloned());
        match name {
            Some(name) => {
                table.slots.promote(&name);
                Origin::Name(name)
            }
            None => Origin::NeverLookedUp,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// A free slot, or the one of the name that was not used for the longest time.
    fn assign(&mut self, name: &HostName) -> u32 {
        let next = u32::try_from(self.names.len()).unwrap_or(CAPACITY);
        let slot = if next < CAPACITY {
            self.names.push(name.clone());
            next
        } else {
            let slot = self.slots.pop_lru().map_or(0, |(_, slot)| slot);
            if let Some(place) = self.names.get_mut(slot as usize) {
                place.clone_from(name);
            }
            slot
        };
        self.slots.put(name.clone(), slot);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_keeps_its_address_and_the_address_its_name() {
        let names = SyntheticNames::new(SyntheticRange::default());
        let a = names.address(&name("a.example"));
        let b = names.address(&name("b.example"));
        assert_ne!(a, b);
        assert_eq!(names.address(&name("a.example")), a);
        assert_eq!(names.origin(a.into()), Origin::Name(name("a.example")));
    }

    #[test]
    fn what_nobody_looked_up_is_told_apart() {
        let names = SyntheticNames::new(SyntheticRange::default());
        let range = names.range();
        assert_eq!(names.origin(range.sink().into()), Origin::Sink);
        assert_eq!(names.origin(range.nameserver().into()), Origin::NeverLookedUp);
        assert_eq!(names.origin("28.0.1.0".parse().unwrap()), Origin::NeverLookedUp);
        assert_eq!(names.origin("28.1.255.255".parse().unwrap()), Origin::NeverLookedUp);
        assert_eq!(names.origin("93.184.216.34".parse().unwrap()), Origin::Literal);
        assert_eq!(names.origin("::1".parse().unwrap()), Origin::Literal);
        assert_eq!(names.origin("::ffff:28.0.1.0".parse().unwrap()), Origin::Literal);
    }

    #[test]
    fn the_least_recently_used_name_makes_room() {
        let names = SyntheticNames::new(SyntheticRange::default());
        let kept = names.address(&name("n0.example"));
        let lost = names.address(&name("n1.example"));
        for i in 2..CAPACITY {
            names.address(&name(&format!("n{i}.example")));
        }
        assert_eq!(names.origin(kept.into()), Origin::Name(name("n0.example")));
        let fresh = names.address(&name("fresh.example"));
        assert_eq!(fresh, lost);
        assert_eq!(names.origin(lost.into()), Origin::Name(name("fresh.example")));
        assert_eq!(names.origin(kept.into()), Origin::Name(name("n0.example")));
        assert!(names.range().contains(fresh));
    }

    #[test]
    fn a_small_range_is_refused() {
        assert!(SyntheticRange::new("10.0.0.0/19".parse().unwrap()).is_err());
        assert!(SyntheticRange::new("10.0.0.0/18".parse().unwrap()).is_ok());
    }
}
