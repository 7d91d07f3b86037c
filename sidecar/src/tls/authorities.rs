//! The authority that containers are started with, and those before it that containers which run still trust. Each is
//! one file in the state volume; the former ones are in a directory of their own until their last container has ended.

use std::collections::HashSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::authority::{Authority, AuthorityError};
use super::leaf::Leaves;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long before its end another one takes its place: containers that run have that long to be started again.
const AHEAD: Duration = Duration::from_secs(180 * 24 * 60 * 60);
/// How long before its end those are told of that trust it still.
const WARNED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How long nobody must have trusted it: a sidecar that has just started does not know all containers yet.
const UNUSED: Duration = Duration::from_secs(60 * 60);

#[derive(Debug)]
pub struct Authorities {
    state: PathBuf,
    all: Mutex<All>,
}

#[derive(Debug)]
struct All {
    current: Arc<Leaves>,
    former: Vec<Former>,
    /// When it was last looked at whether one ends.
    looked: Option<SystemTime>,
    /// What became of that.
    problems: Vec<String>,
}

#[derive(Debug)]
struct Former {
    leaves: Arc<Leaves>,
    unused_since: Option<Instant>,
}

impl Authorities {
    pub fn open(state: &Path) -> Result<Self, AuthorityError> {
        let current = Authority::load_or_create(state)?;
        let mut former = Vec::new();
        for path in files(state)? {
            let Some(authority) = Authority::former(&path)? else {
                tracing::warn!("{} has ended, and is removed: nobody can trust it", path.display());
                remove(&path)?;
                continue;
            };
            // A rotation was cut short before the new one was there.
            if authority.tag() == current.tag() {
                remove(&path)?;
            } else {
                former.push(Former { leaves: Arc::new(Leaves::new(authority)), unused_since: None });
            }
        }
        let current = Arc::new(Leaves::new(current));
        let all = Mutex::new(All { current, former, looked: None, problems: Vec::new() });
        Ok(Self { state: state.to_owned(), all })
    }

    /// Of the one that containers trust that are started now.
    pub fn current(&self) -> Arc<Leaves> {
        Arc::clone(&self.all().current)
    }

    /// Also of a former one.
    pub fn of(&self, tag: &str) -> Option<Arc<Leaves>> {
        let all = self.all();
        let known = std::iter::once(&all.current).chain(all.former.iter().map(|former| &former.leaves));
        known.into_iter().find(|leaves| leaves.authority().tag() == tag).cloned()
    }

    /// Another one for the containers that are started from now on. Cut short anywhere, it was made or it was not, and
    /// what containers trust is there.
    pub fn rotate(&self) -> Result<(), AuthorityError> {
        let mut all = self.all();
        self.rotate_all(&mut all, SystemTime::now())
    }

    /// What is to be done from time to time, given which of them containers trust: one that ends is replaced ahead, and one
    /// that nobody trusts any more is deleted. None: that cannot be told now.
    pub fn tend(&self, trusted: Option<&HashSet<String>>) {
        self.tend_at(trusted, SystemTime::now(), Instant::now());
    }

    /// For `status`.
    pub fn problems(&self) -> Vec<String> {
        self.all().problems.clone()
    }

    fn tend_at(&self, trusted: Option<&HashSet<String>>, now: SystemTime, instant: Instant) {
        let mut all = self.all();
        all.former.retain_mut(|former| {
            if trusted.is_none_or(|trusted| trusted.contains(&former.leaves.authority().tag())) {
                former.unused_since = None;
                return true;
            }
            let since = *former.unused_since.get_or_insert(instant);
            let path = path(&self.state, former.leaves.authority());
            instant.saturating_duration_since(since) < UNUSED || remove(&path).is_err()
        });
        if all.looked.is_some_and(|looked| now.duration_since(looked).is_ok_and(|passed| passed < DAY)) {
            return;
        }
        all.looked = Some(now);
        all.problems.clear();
        if all.current.authority().ends() < now + AHEAD {
            match self.rotate_all(&mut all, now) {
                Ok(()) => tracing::info!(
                    "the certificate authority ends soon: containers that are started now trust a new one"
                ),
                Err(error) => all
                    .problems
                    .push(format!("the certificate authority ends soon and could not be replaced: {error}")),
            }
        }
        let ends = |former: &&Former| former.leaves.authority().ends() < now + WARNED;
        let soon = all.former.iter().filter(ends).filter(|former| former.unused_since.is_none());
        let said = soon.map(|former| {
            let authority = former.leaves.authority();
            format!(
                "containers trust a certificate authority ({}) that ends on {}: start them again before",
                authority.tag(),
                authority.last_day()
            )
        });
        let said: Vec<String> = said.collect();
        all.problems.extend(said);
        for problem in &all.problems {
            tracing::warn!("{problem}");
        }
    }

    fn rotate_all(&self, all: &mut All, now: SystemTime) -> Result<(), AuthorityError> {
        let directory = self.state.join(FORMER);
        let made = DirBuilder::new().mode(0o700).recursive(true).create(&directory);
        made.map_err(|error| AuthorityError::Io { path: directory, error })?;
        let before = Arc::clone(&all.current);
        before.authority().keep(&path(&self.state, before.authority()))?;
        let new = Authority::replace(&self.state, now)?;
        all.current = Arc::new(Leaves::new(new));
        all.former.push(Former { leaves: before, unused_since: None });
        Ok(())
    }

    /// How many of the former ones would be deleted.
    #[cfg(test)]
    pub(crate) fn unused(&self) -> usize {
        self.all().former.iter().filter(|former| former.unused_since.is_some()).count()
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A directory in the state volume.
const FORMER: &str = "authorities";

fn path(state: &Path, authority: &Authority) -> PathBuf {
    state.join(FORMER).join(format!("{}.pem", authority.tag()))
}

fn files(state: &Path) -> Result<Vec<PathBuf>, AuthorityError> {
    let directory = state.join(FORMER);
    let is_one = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "pem");
    match fs::read_dir(&directory) {
        Ok(files) => Ok(files.filter_map(Result::ok).map(|file| file.path()).filter(is_one).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(AuthorityError::Io { path: directory, error }),
    }
}

fn remove(path: &Path) -> Result<(), AuthorityError> {
    fs::remove_file(path).map_err(|error| AuthorityError::Io { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(leaves: &Leaves) -> String {
        leaves.authority().tag()
    }

    #[test]
    fn a_former_one_stays_for_its_containers_and_goes_with_the_last() {
        let state = tempfile::tempdir().unwrap();
        let authorities = Authorities::open(state.path()).unwrap();
        let old = tag(&authorities.current());
        authorities.rotate().unwrap();
        let new = tag(&authorities.current());
        assert_ne!(old, new);
        assert_eq!(tag(&authorities.of(&old).unwrap()), old);
        assert!(authorities.of("0").is_none());
        // For the next sidecar, too.
        let next = Authorities::open(state.path()).unwrap();
        assert_eq!((tag(&next.current()), tag(&next.of(&old).unwrap())), (new.clone(), old.clone()));
        let (now, start) = (SystemTime::now(), Instant::now());
        let in_use = HashSet::from([old.clone()]);
        next.tend_at(Some(&in_use), now, start + 3 * UNUSED);
        next.tend_at(Some(&HashSet::new()), now, start + 4 * UNUSED);
        // It was seen again in between.
        next.tend_at(Some(&in_use), now, start + 4 * UNUSED + UNUSED / 2);
        next.tend_at(Some(&HashSet::new()), now, start + 5 * UNUSED);
        // Nobody could tell in between.
        next.tend_at(None, now, start + 5 * UNUSED + UNUSED / 2);
        next.tend_at(None, now, start + 9 * UNUSED);
        assert!(next.of(&old).is_some());
        let start = start + 5 * UNUSED;
        next.tend_at(Some(&HashSet::new()), now, start + 5 * UNUSED);
        next.tend_at(Some(&HashSet::new()), now, start + 6 * UNUSED - Duration::from_secs(1));
        assert!(next.of(&old).is_some());
        next.tend_at(Some(&HashSet::new()), now, start + 6 * UNUSED);
        assert!(next.of(&old).is_none() && files(state.path()).unwrap().is_empty());
        assert_eq!(tag(&Authorities::open(state.path()).unwrap().current()), new);
    }

    #[test]
    fn one_that_ends_is_replaced_ahead_and_who_trusts_it_still_is_told_of() {
        let state = tempfile::tempdir().unwrap();
        let authorities = Authorities::open(state.path()).unwrap();
        let old = authorities.current();
        let (ends, start) = (old.authority().ends(), Instant::now());
        let in_use = HashSet::from([tag(&old)]);
        authorities.tend_at(Some(&in_use), ends - AHEAD - DAY, start);
        assert_eq!(tag(&authorities.current()), tag(&old));
        authorities.tend_at(Some(&in_use), ends - AHEAD + DAY, start);
        assert_ne!(tag(&authorities.current()), tag(&old));
        assert!(authorities.current().authority().ends() > ends);
        assert!(authorities.problems().is_empty() && authorities.of(&tag(&old)).is_some());
        authorities.tend_at(Some(&in_use), ends - WARNED + DAY, start);
        let [problem] = authorities.problems().try_into().unwrap();
        assert!(problem.contains(&tag(&old)) && problem.contains("start them again"), "{problem}");
        authorities.tend_at(Some(&HashSet::new()), ends - WARNED + 3 * DAY, start);
        assert!(authorities.problems().is_empty());
        // What cannot be done is said, and is tried again.
        let current = authorities.current();
        fs::remove_dir_all(state.path()).unwrap();
        fs::write(state.path(), "").unwrap();
        authorities.tend_at(Some(&HashSet::new()), current.authority().ends() - AHEAD + DAY, start);
        assert!(authorities.problems()[0].contains("could not be replaced"));
        assert_eq!(tag(&authorities.current()), tag(&current));
        fs::remove_file(state.path()).unwrap();
        fs::create_dir(state.path()).unwrap();
    }

    /// Each state of the files between two steps of a rotation.
    #[test]
    fn a_rotation_that_is_cut_short_loses_nothing() {
        let state = tempfile::tempdir().unwrap();
        let authorities = Authorities::open(state.path()).unwrap();
        let old = authorities.current();
        // After the copy, and before the new one.
        fs::create_dir(state.path().join(FORMER)).unwrap();
        old.authority().keep(&path(state.path(), old.authority())).unwrap();
        fs::write(state.path().join(FORMER).join("half.new"), "-----BEGIN").unwrap();
        let next = Authorities::open(state.path()).unwrap();
        assert_eq!(tag(&next.current()), tag(&old));
        assert!(files(state.path()).unwrap().is_empty());
        // After the new one, and before its certificate is published.
        let certificate = fs::read_to_string(state.path().join("authority.crt")).unwrap();
        next.rotate().unwrap();
        let new = next.current();
        fs::write(state.path().join("authority.crt"), certificate).unwrap();
        let next = Authorities::open(state.path()).unwrap();
        assert_eq!(tag(&next.current()), tag(&new));
        assert!(next.of(&tag(&old)).is_some());
        let published = fs::read_to_string(state.path().join("authority.crt")).unwrap();
        assert_eq!(published, new.authority().certificate_pem());
        // A former one that is damaged is named, and not taken away.
        fs::write(path(state.path(), old.authority()), "x").unwrap();
        let error = Authorities::open(state.path()).unwrap_err().to_string();
        assert!(error.contains(&tag(&old)), "{error}");
    }
}
