//! The configuration that is in force, and its reload. The first load is strict; a reload keeps of each part what was
//! good.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use understudy_harnesses::Harnesses;
use understudy_policies::{Ceiling, Policies};

use super::{Configuration, spliced};
use crate::accounts::Store;
use crate::ceiling;
use crate::config::{Directories, Settings};
use crate::credentials::{Catalogue, InstallationKey, KnownStandIns, Loading, Source, Surroundings, Vault};
use crate::current::Current;
use crate::instructions::Instructions;

pub struct Live {
    directories: Directories,
    key: InstallationKey,
    around: Surroundings,
    remember: Remember,
    known: Mutex<KnownStandIns>,
    configuration: Current<Configuration>,
    vault: Current<Vault>,
    /// One at a time: what was read last must be what is in force.
    reloading: Mutex<()>,
}

/// What is written to the state volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remember {
    /// Stand-ins that containers are given, and the key that they are made with.
    StandIns,
    /// The key alone, if there is none yet: for stand-ins that somebody else gives to containers.
    Key,
    /// For a look at the configuration, by whoever: a file of another user would keep the sidecar from starting.
    Nothing,
}

impl Live {
    /// A broken `sidecar.toml`, `secrets.toml`, `ceiling.toml` or provider of the catalogue is an error; a broken policy,
    /// descriptor or secret is a problem that closes what depends on it.
    pub fn load(directories: &Directories, around: Surroundings, remember: Remember) -> Result<Self> {
        let around = Surroundings { accounts: directories.accounts(&around)?, ..around };
        let settings = Settings::load(&directories.sidecar_toml())?;
        let key = directories.state.join("installation.key");
        let key = match remember {
            Remember::Nothing => InstallationKey::load_or_draw(&key),
            Remember::StandIns | Remember::Key => InstallationKey::load_or_create(&key),
        };
        let key = key.context(
            "the installation's key (mount a volume for it: -v understudy-state:/var/lib/understudy)",
        )?;
        let known = KnownStandIns::load(&record(directories))?;
        let catalogue = Arc::new(Catalogue::load(&directories.catalogue())?);
        let loading = Loading {
            catalogue: &catalogue,
            key: &key,
            around: &around,
            known: &known,
            previous: None,
            ask_again: true,
        };
        let vault = Arc::new(Vault::load(&directories.secrets_toml(), loading)?);
        let proxy = settings.upstream_proxy.as_ref().map(|proxy| proxy.read(&around));
        let ceiling = ceiling::load(&directories.ceiling_toml())?;
        let policies = Policies::load(Some(&directories.policies()));
        let configuration = Configuration {
            settings,
            upstream_proxy: proxy.transpose().map_err(anyhow::Error::msg)?,
            harnesses: Harnesses::load(Some(&directories.harnesses())),
            narrowed: ceiling::warnings(&policies, &ceiling).into(),
            spliced: spliced::problems(&policies, &vault).into(),
            policies,
            instructions: Instructions::load(&directories.instructions()),
            ceiling,
            catalogue,
            vault: Arc::clone(&vault),
            stale: Vec::new(),
        };
        let live = Self {
            directories: directories.clone(),
            key,
            around,
            remember,
            known: Mutex::new(known),
            configuration: configuration.into(),
            vault: Current::new(vault),
            reloading: Mutex::new(()),
        };
        live.remember(&live.vault.current()).map_err(anyhow::Error::msg)?;
        Ok(live)
    }

    pub fn current(&self) -> Arc<Configuration> {
        self.configuration.current()
    }

    /// What stand-ins are derived from.
    pub fn key(&self) -> &InstallationKey {
        &self.key
    }

    /// The accounts that are kept.
    pub fn store(&self) -> &Store {
        &self.around.accounts
    }

    /// The vault of [`Live::current`], for those who need nothing else.
    pub fn vault(&self) -> &Current<Vault> {
        &self.vault
    }

    /// Reads everything again. With `ask_again`, commands are run though their values are cached.
    pub fn reload(&self, ask_again: bool) {
        let _one = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current();
        let mut stale = Vec::new();
        let settings = self.settings(&before.settings, &mut stale);
        let proxy = settings.upstream_proxy.as_ref().map(|proxy| proxy.read(&self.around)).transpose();
        let upstream_proxy = proxy.unwrap_or_else(|error| {
            stale.push(format!("{error}; the proxy that was in force stays"));
            before.upstream_proxy.clone()
        });
        let catalogue = self.catalogue(&before.catalogue, &mut stale);
        let vault = self.secrets(&catalogue, &before.vault, ask_again, &mut stale);
        if let Err(error) = self.remember(&vault) {
            stale.push(error);
        }
        let ceiling = self.ceiling(&before.ceiling, &mut stale);
        let policies = Policies::load(Some(&self.directories.policies())).or_before(&before.policies);
        let configuration = Configuration {
            settings,
            upstream_proxy,
            harnesses: Harnesses::load(Some(&self.directories.harnesses())).or_before(&before.harnesses),
            narrowed: ceiling::warnings(&policies, &ceiling).into(),
            spliced: spliced::problems(&policies, &vault).into(),
            policies,
            instructions: Instructions::load(&self.directories.instructions()),
            ceiling,
            catalogue,
            vault: Arc::clone(&vault),
            stale,
        };
        // Not by the first request.
        vault.watch();
        self.configuration.replace(Arc::new(configuration));
        self.vault.replace(vault);
    }

    /// Reads accounts again, and nothing else.
    pub fn reload_accounts(&self) {
        let _one = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current();
        let mut stale = before.stale.clone();
        let vault = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let (catalogue, key, around) = (&before.catalogue, &self.key, &self.around);
            let previous = Some(before.vault.as_ref());
            let loading = Loading { catalogue, key, around, known: &known, previous, ask_again: false };
            match Vault::with_accounts(&before.vault, loading) {
                Ok(vault) => Arc::new(vault),
                Err(error) => return tracing::error!("accounts cannot be taken over: {error}"),
            }
        };
        if let Err(error) = self.remember(&vault) {
            stale.push(error);
        }
        let spliced = spliced::problems(&before.policies, &vault).into();
        let configuration = Configuration { vault: Arc::clone(&vault), stale, spliced, ..(*before).clone() };
        vault.watch();
        self.configuration.replace(Arc::new(configuration));
        self.vault.replace(vault);
    }

    /// All files that the configuration is read from, those of values among them, whether or not they exist.
    pub fn files(&self) -> Vec<PathBuf> {
        let directories = &self.directories;
        let mut files =
            vec![directories.sidecar_toml(), directories.secrets_toml(), directories.ceiling_toml()];
        let policies = [directories.policies(), directories.instructions()];
        for directory in policies.into_iter().chain([directories.harnesses(), directories.catalogue()]) {
            let entries = fs::read_dir(directory).into_iter().flatten();
            files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
        }
        let vault = self.vault.current();
        files.extend(vault.declarations().filter_map(|declaration| declaration.source.file(&self.around)));
        files.extend(self.proxy_source().and_then(|source| source.file(&self.around)));
        files.sort();
        files.dedup();
        files
    }

    fn settings(&self, before: &Settings, stale: &mut Vec<String>) -> Settings {
        let mut settings = match Settings::load(&self.directories.sidecar_toml()) {
            Ok(settings) => settings,
            Err(error) => {
                stale.push(format!("{error}; what it said before stays in force"));
                return before.clone();
            }
        };
        for (key, changed) in [
            ("extra-ca", settings.extra_ca != before.extra_ca),
            ("notify", settings.notify != before.notify),
            ("metrics", settings.metrics != before.metrics),
            ("publish", settings.publish != before.publish),
            ("audit", settings.audit != before.audit),
            ("synthetic-range", settings.synthetic_range != before.synthetic_range),
        ] {
            if changed {
                stale.push(format!(
                    "sidecar.toml: `{key}` was changed, which takes effect when the sidecar is started again"
                ));
            }
        }
        settings.extra_ca.clone_from(&before.extra_ca);
        settings.synthetic_range = before.synthetic_range;
        settings.notify.clone_from(&before.notify);
        settings.metrics = before.metrics;
        settings.publish.clone_from(&before.publish);
        settings.audit.clone_from(&before.audit);
        settings
    }

    fn ceiling(&self, before: &Ceiling, stale: &mut Vec<String>) -> Ceiling {
        ceiling::load(&self.directories.ceiling_toml()).unwrap_or_else(|error| {
            stale.push(format!("{error:#}; what it said before stays in force"));
            before.clone()
        })
    }

    fn catalogue(&self, before: &Arc<Catalogue>, stale: &mut Vec<String>) -> Arc<Catalogue> {
        match Catalogue::load(&self.directories.catalogue()) {
            Ok(catalogue) => Arc::new(catalogue),
            Err(error) => {
                stale.push(format!("{error}; what it said before stays in force"));
                Arc::clone(before)
            }
        }
    }

    fn secrets(
        &self,
        catalogue: &Arc<Catalogue>,
        before: &Arc<Vault>,
        ask_again: bool,
        stale: &mut Vec<String>,
    ) -> Arc<Vault> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (key, around, previous) = (&self.key, &self.around, Some(before.as_ref()));
        let loading = Loading { catalogue, key, around, known: &known, previous, ask_again };
        match Vault::load(&self.directories.secrets_toml(), loading) {
            Ok(vault) => Arc::new(vault),
            Err(error) => {
                stale.push(format!("{error}; what it said before stays in force"));
                Arc::clone(before)
            }
        }
    }

    /// Before a container can be given one of them.
    fn remember(&self, vault: &Vault) -> Result<(), String> {
        if self.remember != Remember::StandIns {
            return Ok(());
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let with = known.with(vault);
        if *known == with {
            return Ok(());
        }
        with.save(&record(&self.directories)).map_err(|error| format!("the record of stand-ins: {error}"))?;
        *known = with;
        Ok(())
    }

    /// Names of variables that values were read from.
    pub fn variables(&self) -> Vec<String> {
        let vault = self.vault.current();
        let sources = vault.declarations().map(|declaration| declaration.source.clone());
        let variables = sources.chain(self.proxy_source()).filter_map(|source| match source {
            Source::Variable(name) => Some(name),
            _ => None,
        });
        variables.collect()
    }

    fn proxy_source(&self) -> Option<Source> {
        self.current().settings.upstream_proxy.as_ref()?.credentials.clone()
    }
}

fn record(directories: &Directories) -> PathBuf {
    directories.state.join("stand-ins.json")
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Live(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt;

    use understudy_control::{Prepare, User, annotation};

    use super::*;

    struct Place {
        _root: tempfile::TempDir,
        directories: Directories,
    }

    impl Place {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let [config, state, control] = ["config", "state", "control"].map(|name| root.path().join(name));
            fs::create_dir_all(config.join("policies")).unwrap();
            fs::create_dir(&state).unwrap();
            Self {
                _root: root,
                directories: Directories { config, state, control, store_key: Default::default() },
            }
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.directories.config.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }

        fn declare(&self) {
            let text = crate::credentials::fixture::declared("a", "");
            let here = format!("\"{}/value\"", self.directories.config.display());
            self.write("secrets.toml", &text.replace("\"/run/secrets/a\"", &here));
        }

        fn load(&self) -> Result<Live> {
            let around = Surroundings {
                podman_secrets: "/none".into(),
                credentials: None,
                host_run: true,
                ..Surroundings::default()
            };
            Live::load(&self.directories, around, Remember::StandIns)
        }
    }

    fn prepare() -> Prepare {
        Prepare {
            id: "a".repeat(64).parse().unwrap(),
            name: None,
            image: None,
            annotations: [(annotation::ALLOW, "a.example"), (annotation::HARNESS, "claude-code")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            user: User { uid: 0, gid: 0 },
            env: std::collections::BTreeMap::new(),
            args: Vec::new(),
            managed: Vec::new(),
            joins: None,
            origin: None,
            mounts: None,
        }
    }

    #[test]
    fn the_credentials_of_the_way_out_are_read_and_kept() {
        let place = Place::new();
        let file = place.directories.config.join("proxy");
        let declared = format!("[upstream-proxy]\nurl = \"http://127.0.0.1:1\"\nfile = {file:?}\n");
        place.write("sidecar.toml", &declared);
        let error = place.load().unwrap_err().to_string();
        assert!(error.starts_with("sidecar.toml: [upstream-proxy]: file "), "{error}");
        place.write("proxy", "me:one\n");
        let live = place.load().unwrap();
        let proxy = |live: &Live| live.current().upstream_proxy.clone().unwrap();
        let first = proxy(&live);
        assert!(first.credentials.is_some() && live.files().contains(&file));
        place.write("proxy", "me:two\n");
        live.reload(false);
        let second = proxy(&live);
        assert_ne!(second, first);
        place.write("proxy", "nonsense");
        live.reload(false);
        assert_eq!(proxy(&live), second);
        let problems = live.current().problems();
        assert!(problems.iter().any(|line| line.contains("expected `user:password`")), "{problems:?}");
    }

    const POLICY: &str = "[[allow]]\nhost = \"a.example\"";

    #[test]
    fn what_is_broken_at_the_start_is_an_error_and_later_a_problem() {
        for (name, good, bad) in [
            ("sidecar.toml", "resolvers = [\"10.0.0.1\"]", "resolver = 1"),
            ("secrets.toml", "", "[a]\nkid = 1"),
            ("ceiling.toml", "", "[x"),
        ] {
            let place = Place::new();
            place.declare();
            place.write("value", "sk-0123456789abcdefghij");
            place.write(name, bad);
            assert!(place.load().is_err());
            place.write(name, good);
            place.declare();
            let live = place.load().unwrap();
            place.write(name, bad);
            live.reload(false);
            let now = live.current();
            assert_eq!(now.vault.secrets().len(), 1);
            assert_eq!(now.settings.resolvers.len(), usize::from(name == "sidecar.toml"));
            let problems = now.problems();
            assert!(problems.len() == 1 && problems[0].contains("stays in force"), "{problems:?}");
            assert!(problems[0].contains(name), "{problems:?}");
        }
    }

    #[test]
    fn each_part_is_taken_over_although_another_is_broken() {
        let place = Place::new();
        place.declare();
        place.write("value", "sk-0123456789abcdefghij");
        place.write("policies/web.toml", POLICY);
        let live = place.load().unwrap();
        place.write("secrets.toml", "[");
        place.write("policies/web.toml", "[[allow]]\nhost = \"b.example\"");
        place.write("policies/new.toml", POLICY);
        live.reload(false);
        let now = live.current();
        assert!(now.policies.policy("new").is_some() && now.vault.secret("a").is_some());
        let web = now.policies.policy("web").unwrap();
        assert!(web.rules()[0].is_about(&"b.example".parse().unwrap()));
        assert!(Arc::ptr_eq(&now.vault, &live.vault().current()));
        place.declare();
        live.reload(false);
        assert!(live.current().problems().is_empty());
    }

    #[test]
    fn a_port_is_published_with_the_operators_word_alone() {
        let place = Place::new();
        let asks = |live: &Live| {
            let mut prepare = prepare();
            prepare.annotations.insert("understudy.publish".to_owned(), "3000 8080:3001".to_owned());
            live.current().terms(&prepare)
        };
        let refusal = asks(&place.load().unwrap()).unwrap_err();
        assert!(refusal.remedy.contains("`publish = 3000` into sidecar.toml"), "{refusal:?}");
        place.write("sidecar.toml", "publish = 3000");
        let live = place.load().unwrap();
        assert!(asks(&live).unwrap_err().remedy.contains("`publish = 8080`"));
        place.write("sidecar.toml", "publish = [3000, 8080]");
        live.reload(false);
        assert!(asks(&live).is_err());
        let problems = live.current().problems();
        assert!(problems.iter().any(|line| line.contains("`publish` was changed")), "{problems:?}");
        let notes = asks(&place.load().unwrap()).unwrap().notes;
        assert!(notes.iter().any(|note| note.contains("port 3001 is reached by port 8080")), "{notes:?}");
        place.write("sidecar.toml", "publish = \"1-9999\"\nmetrics = 8080");
        assert!(asks(&place.load().unwrap()).unwrap_err().reason.contains("`metrics` port"));
        place.write("sidecar.toml", "publish = \"1-9999\"");
        place.write("ceiling.toml", "annotations.forbid = [\"understudy.publish\"]");
        let refusal = asks(&place.load().unwrap()).unwrap_err();
        assert!(refusal.reason.contains("understudy.publish"), "{refusal:?}");
    }

    #[test]
    fn what_cannot_change_under_running_containers_is_told() {
        let place = Place::new();
        let live = place.load().unwrap();
        place.write("sidecar.toml", "synthetic-range = \"29.0.0.0/16\"\nextra-ca = [\"/x\"]\n");
        live.reload(false);
        let problems = live.current().problems();
        assert!(problems.len() == 2 && problems[0].contains("`extra-ca` was changed"), "{problems:?}");
        assert_eq!(live.current().settings, Settings::default());
    }

    #[test]
    fn stand_ins_outlive_a_change_of_shape_and_a_restart() {
        let place = Place::new();
        place.declare();
        place.write("value", "sk-0123456789abcdefghij");
        let live = place.load().unwrap();
        let old = live.vault().current().secret("a").unwrap().stand_in().to_owned();
        place.write("value", "an-other-value-of-another-shape");
        live.reload(false);
        for live in [live, place.load().unwrap()] {
            let vault = live.vault().current();
            assert!(vault.secret("a").unwrap().answers_to(old.as_bytes()));
            assert_ne!(vault.secret("a").unwrap().stand_in(), old);
        }
        place.write("secrets.toml", "");
        let live = place.load().unwrap();
        assert_eq!(live.vault().current().retired_in(old.as_bytes()), Some("a"));
    }

    #[test]
    fn a_ceiling_that_comes_down_on_a_running_container_leaves_it_nothing() {
        use understudy_policies::Verdict;

        let place = Place::new();
        place.declare();
        place.write("ceiling.toml", "annotations.allow-hosts = \"a.example\"");
        place.write("value", "sk-0123456789abcdefghij");
        let live = place.load().unwrap();
        let prepare = prepare();
        let asked = crate::credentials::Asked::new(&prepare, "claude-code", ["a"].into_iter().collect());
        let now = || {
            let rights = live.current().rights(&asked, Vec::new());
            (rights.policy.decide(&"a.example".parse().unwrap(), 443), rights.grants.names())
        };
        assert!(matches!(now(), (Verdict::Allowed { .. }, grants) if grants == ["a"]));
        place.write("ceiling.toml", "[annotations]\nforbid = [\"understudy.allow\"]\n");
        live.reload(false);
        let (verdict, grants) = now();
        assert!(
            matches!(&verdict, Verdict::Failed { error, .. } if error.contains("goes beyond")),
            "{verdict:?}"
        );
        assert!(grants.is_empty());
    }

    #[test]
    fn what_a_ceiling_makes_of_policies_is_found_out_by_each_reload_and_not_by_each_status() {
        let place = Place::new();
        fs::create_dir_all(place.directories.policies()).unwrap();
        let file = place.directories.policies().join("web.toml");
        fs::write(file, "[[allow]]\nhost = \"a.example\"\n").unwrap();
        let live = place.load().unwrap();
        assert!(live.current().warnings().is_empty(), "{:?}", live.current().warnings());
        place.write("ceiling.toml", "hosts = \"b.example\"\n");
        live.reload(false);
        let told = live.current().warnings();
        assert!(told.len() == 1 && told[0].contains("no container starts with it"), "{told:?}");
        assert_eq!(place.load().unwrap().current().warnings(), told);
        live.reload_accounts();
        // Nobody looks again: else a ceiling that was not read would be seen.
        let asked = Configuration { ceiling: Ceiling::default(), ..(*live.current()).clone() };
        assert_eq!(asked.warnings(), told);
    }

    #[test]
    fn a_policy_that_is_gone_is_what_refusals_say_also_where_it_is_required() {
        use understudy_policies::Verdict;

        let place = Place::new();
        place.declare();
        place.write("value", "sk-0123456789abcdefghij");
        let file = place.directories.policies().join("web.toml");
        fs::create_dir_all(place.directories.policies()).unwrap();
        fs::write(&file, "[[allow]]\nhost = \"a.example\"\n").unwrap();
        place.write("ceiling.toml", "[[require]]\npolicy = \"web\"\n[[require]]\nsecret = \"a\"\n");
        let live = place.load().unwrap();
        let mut prepare = prepare();
        prepare.annotations.remove(annotation::ALLOW);
        prepare.annotations.insert(annotation::POLICY.to_owned(), "web".to_owned());
        let asked = crate::credentials::Asked::new(&prepare, "claude-code", ["a"].into_iter().collect());
        let now = || {
            let rights = live.current().rights(&asked, Vec::new());
            assert_eq!(rights.policy.policies()[0].name(), "web");
            rights.policy.decide(&"a.example".parse().unwrap(), 443)
        };
        assert!(matches!(now(), Verdict::Allowed { .. }), "{:?}", now());
        fs::remove_file(&file).unwrap();
        live.reload(false);
        let Verdict::Failed { policy, error } = now() else { panic!("it is not gone: {:?}", now()) };
        assert!(policy == "web" && error.contains("there is no policy `web`"), "{error}");
    }

    #[test]
    fn a_record_that_cannot_be_written_is_told_until_it_can() {
        let place = Place::new();
        let live = place.load().unwrap();
        place.declare();
        place.write("value", "sk-0123456789abcdefghij");
        let new = record(&place.directories).with_extension("new");
        fs::create_dir(&new).unwrap();
        for _ in 0..2 {
            live.reload(false);
            let problems = live.current().problems();
            assert!(
                problems.iter().any(|problem| problem.contains("the record of stand-ins")),
                "{problems:?}"
            );
        }
        fs::remove_dir(&new).unwrap();
        live.reload(false);
        assert!(live.current().problems().is_empty());
    }

    #[test]
    fn a_look_at_the_configuration_leaves_no_record() {
        let place = Place::new();
        place.declare();
        place.write("value", "sk-0123456789abcdefghij");
        let around = Surroundings {
            podman_secrets: "/none".into(),
            credentials: None,
            host_run: true,
            ..Surroundings::default()
        };
        let (config, state) = (place.directories.config.clone(), place.directories.state.clone());
        let names = |of: &PathBuf| -> BTreeSet<_> {
            fs::read_dir(of).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        let before = (names(&config), names(&state));
        Live::load(&place.directories, around.clone(), Remember::Nothing).unwrap();
        assert_eq!((names(&config), names(&state)), before);
        let absent = Directories { state: state.join("absent"), ..place.directories.clone() };
        Live::load(&absent, around.clone(), Remember::Nothing).unwrap();
        assert!(!absent.state.exists());
        Live::load(&place.directories, around.clone(), Remember::Key).unwrap();
        assert_eq!(names(&state), BTreeSet::from(["installation.key".into()]));
        // One that cannot be used is said all the same.
        fs::write(state.join("installation.key"), "short").unwrap();
        assert!(Live::load(&place.directories, around, Remember::Nothing).is_err());
    }

    #[test]
    fn every_file_that_matters_is_named() {
        let place = Place::new();
        place.declare();
        place.write("policies/web.toml", POLICY);
        let live = place.load().unwrap();
        let config = &place.directories.config;
        let names = ["ceiling.toml", "policies/web.toml", "secrets.toml", "sidecar.toml", "value"];
        assert_eq!(live.files(), names.map(|name| config.join(name)));
    }
}
