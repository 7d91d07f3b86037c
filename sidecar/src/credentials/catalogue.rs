//! What is known of well-known services: what their credentials look like, where they stand, what makes new ones. Data:
//! one file each in `catalogue/`, compiled in, and those of the configuration directory, which win.

pub mod alphabet;
pub mod checksum;
pub mod endpoint;
pub mod key_login;
pub mod login_file;
pub mod minted;
pub mod mutation;
pub mod oauth;
pub mod pattern;
pub mod provider;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use understudy_policies::document::closest;
use understudy_policies::{DocumentError, HostName};

pub use alphabet::Alphabet;
pub use checksum::Checksum;
pub use endpoint::{Creates, Endpoint};
pub use key_login::KeyLogin;
pub use login_file::{LoginFile, Syntax};
pub use minted::Minted;
pub use mutation::Mutation;
pub use oauth::{Encoding, Oauth, TokenEndpoint};
pub use pattern::{MIN_DRAWN, Pattern, Piece};
pub use provider::{Kind, Provider, Shape};

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        /// File and text.
        const BUILT_IN: &[(&str, &str)] =
            &[$((concat!($name, ".toml (built in)"), include_str!(concat!("../../catalogue/", $name, ".toml")))),*];
    };
}

built_in![
    "alibaba",
    "amp",
    "anthropic",
    "aws",
    "bitbucket",
    "cloudflare",
    "container-registry",
    "deepseek",
    "discord",
    "github",
    "gitlab",
    "google",
    "groq",
    "hugging-face",
    "linear",
    "mistral",
    "notion",
    "openai",
    "openrouter",
    "package-registry",
    "sentry",
    "shopify",
    "slack",
    "stripe",
    "together",
    "vercel",
    "xai",
];

/// Empty by default.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// By name.
    providers: BTreeMap<String, Provider>,
    search: Search,
}

#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("{file}: `name` is `{name}`; it must be `{expected}`, as the file is called")]
    Name { file: String, name: String, expected: String },
    #[error("{file}: there is another kind `{kind}`, of provider `{provider}`")]
    Twice { file: String, kind: String, provider: String },
    #[error("too many shapes to search for: {0}")]
    Search(#[from] aho_corasick::BuildError),
}

/// `like` names no kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no kind `{name}`{}", meant.as_ref().map_or("; `understudy secrets kinds` lists them".to_owned(), |meant| format!("; did you mean `{meant}`?")))]
pub struct UnknownKind {
    name: String,
    meant: Option<String>,
}

impl Catalogue {
    /// The built-in one, with every `NAME.toml` in `directory` (none if it does not exist) in place of the provider of
    /// that name. A file that is wrong is an error: without its shapes and endpoints less would be refused.
    pub fn load(directory: &Path) -> Result<Self, CatalogueError> {
        let io = |source| CatalogueError::Io { path: directory.to_owned(), source };
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Self::new([]),
            Err(error) => return Err(io(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(io)?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let text = std::fs::read_to_string(&path)
                    .map_err(|source| CatalogueError::Io { path: path.clone(), source })?;
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                files.push((name.unwrap_or_default(), text));
            }
        }
        files.sort();
        Self::new(files)
    }

    /// `files`: name and text of each file of the configuration directory.
    pub fn new(files: impl IntoIterator<Item = (String, String)>) -> Result<Self, CatalogueError> {
        let mut providers = BTreeMap::new();
        for (file, text) in BUILT_IN {
            let provider = provider::parse(file, text)?;
            providers.insert(provider.name.clone(), (file.to_string(), provider));
        }
        for (file, text) in files {
            let provider = provider::parse(&format!("catalogue/{file}"), &text)?;
            let expected = file.trim_end_matches(".toml").to_owned();
            if provider.name != expected {
                return Err(CatalogueError::Name { file, name: provider.name, expected });
            }
            providers.insert(provider.name.clone(), (format!("catalogue/{file}"), provider));
        }
        let mut known: BTreeMap<&str, &str> = BTreeMap::new();
        for (file, provider) in providers.values() {
            for kind in &provider.kinds {
                if let Some(other) = known.insert(&kind.name, &provider.name) {
                    let (kind, provider) = (kind.name.clone(), other.to_owned());
                    return Err(CatalogueError::Twice { file: file.clone(), kind, provider });
                }
            }
        }
        let providers: BTreeMap<_, _> =
            providers.into_iter().map(|(name, (_, provider))| (name, provider)).collect();
        let search = Search::new(providers.values().flat_map(|provider| provider.shapes.iter().cloned()))?;
        Ok(Self { providers, search })
    }

    pub fn providers(&self) -> impl Iterator<Item = &Provider> {
        self.providers.values()
    }

    /// How many kinds of how many providers.
    pub fn size(&self) -> (usize, usize) {
        (self.providers().map(|provider| provider.kinds.len()).sum(), self.providers.len())
    }

    pub fn kind(&self, name: &str) -> Result<&Arc<Kind>, UnknownKind> {
        let kinds = || self.providers().flat_map(|provider| &provider.kinds);
        kinds().find(|kind| kind.name == name).ok_or_else(|| {
            // Cut short: it may be something that was pasted into the wrong line.
            let shown = name.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').take(40).collect();
            let meant = closest(name, kinds().map(|kind| kind.name.as_str())).map(str::to_owned);
            UnknownKind { name: shown, meant }
        })
    }

    /// The most particular shape of all providers that `value` has: shapes that start with nothing in particular are
    /// never told from other words.
    pub fn shape_of(&self, value: &str) -> Option<&Arc<Shape>> {
        let fitting = self.search.shapes.iter().filter(|shape| shape.pattern.fits(value));
        fitting.max_by_key(|shape| shape.pattern.prefix().len())
    }

    /// By which credentials are told apart, each once.
    pub fn prefixes(&self) -> impl Iterator<Item = &str> {
        self.search.shapes.iter().map(|shape| shape.pattern.prefix())
    }

    /// The shape of a credential of some provider that stands in `text` as a word.
    pub fn credential_in(&self, text: &[u8]) -> Option<&Arc<Shape>> {
        self.search.find(text)
    }

    /// The endpoints at `host`, where `likes` are the kinds of the secrets that are bound to it, if they have one.
    pub fn endpoints_at<'c>(
        &'c self,
        host: &'c HostName,
        likes: &'c [&'c str],
    ) -> impl Iterator<Item = &'c Endpoint> {
        self.providers().flat_map(move |provider| {
            let own = provider.is_at(host, likes);
            provider.endpoints.iter().filter(move |endpoint| endpoint::is_among(&endpoint.hosts, host, own))
        })
    }

    /// The same of what is asked for by GraphQL.
    pub fn mutations_at<'c>(
        &'c self,
        host: &'c HostName,
        likes: &[&str],
    ) -> impl Iterator<Item = &'c Mutation> {
        self.providers().flat_map(move |provider| {
            let own = provider.is_at(host, likes);
            provider.mutations.iter().filter(move |mutation| endpoint::is_among(&mutation.hosts, host, own))
        })
    }

    /// What answers of `host` hold, where `likes` are the kinds of the secrets that are bound to it.
    pub fn minted_at<'c>(
        &'c self,
        host: &'c HostName,
        likes: &'c [&'c str],
    ) -> impl Iterator<Item = &'c Minted> {
        self.providers().flat_map(move |provider| {
            let own = provider.is_at(host, likes);
            provider.minted.iter().filter(move |minted| endpoint::is_among(&minted.hosts, host, own))
        })
    }

    /// Kinds of accounts whose token endpoint a server could read this as.
    pub fn token_endpoints<'c>(
        &'c self,
        host: &'c HostName,
        path: &'c str,
    ) -> impl Iterator<Item = (&'c Arc<Kind>, &'c Oauth)> {
        self.accounts().filter(move |(_, oauth)| oauth.token_endpoint.is_at(host, path))
    }

    /// Logins that bring a key, whose endpoint a server could read this as.
    pub fn key_logins<'c>(
        &'c self,
        host: &'c HostName,
        path: &'c str,
    ) -> impl Iterator<Item = (&'c Arc<Kind>, &'c KeyLogin)> {
        self.all_key_logins().filter(move |(_, login)| login.endpoint.is_at(host, path))
    }

    pub fn all_key_logins(&self) -> impl Iterator<Item = (&Arc<Kind>, &KeyLogin)> {
        let kinds = self.providers().flat_map(|provider| &provider.kinds);
        kinds.flat_map(|kind| kind.logins.iter().map(move |login| (kind, login)))
    }

    /// The login files of programs, each with the kind that it is of.
    pub fn login_files(&self) -> impl Iterator<Item = (&Kind, &LoginFile)> {
        let kinds = self.providers().flat_map(|provider| &provider.kinds);
        kinds.flat_map(|kind| kind.login_files.iter().map(move |file| (&**kind, file)))
    }

    /// Kinds that are accounts.
    pub fn accounts(&self) -> impl Iterator<Item = (&Arc<Kind>, &Oauth)> {
        let kinds = self.providers().flat_map(|provider| &provider.kinds);
        kinds.filter_map(|kind| Some((kind, kind.oauth.as_ref()?)))
    }

    /// One line for each thing that the provider's documentation was not seen to say.
    pub fn unconfirmed(&self) -> Vec<String> {
        let of = |provider: &Provider| {
            let shapes = provider.shapes.iter().filter(|shape| !shape.confirmed);
            let shapes = shapes.map(|shape| format!("shape of {}", shape.what));
            let kinds = provider.kinds.iter().filter(|kind| !kind.confirmed);
            let kinds = kinds.map(|kind| format!("placements of kind `{}`", kind.name));
            let endpoints = provider.endpoints.iter().filter(|endpoint| !endpoint.confirmed);
            let endpoints = endpoints.map(|endpoint| format!("endpoint of {}: {endpoint}", provider.what));
            let minted = provider.minted.iter().filter(|minted| !minted.confirmed);
            let minted = minted.map(|minted| format!("what {} mints: {}", provider.what, minted.label));
            let mutations = provider.mutations.iter().filter(|mutation| !mutation.confirmed);
            let mutations = mutations.map(|mutation| format!("endpoint of {}: {mutation}", provider.what));
            shapes.chain(kinds).chain(endpoints).chain(mutations).chain(minted).collect::<Vec<_>>()
        };
        self.providers().flat_map(of).collect()
    }
}

impl Provider {
    /// Whether `host` is one of its own, or of a secret that is like one of its kinds.
    fn is_at(&self, host: &HostName, likes: &[&str]) -> bool {
        let mut hosts = self.hosts.iter().chain(self.kinds.iter().flat_map(|kind| &kind.hosts));
        hosts.any(|pattern| pattern.matches(host))
            || self.kinds.iter().any(|kind| likes.contains(&kind.name.as_str()))
    }
}

/// Finds credentials in text by how they start.
#[derive(Debug, Clone, Default)]
struct Search {
    /// Those with a prefix, in the order of the automaton's patterns.
    shapes: Vec<Arc<Shape>>,
    automaton: Option<AhoCorasick>,
}

/// One or two characters tell nothing.
const SHORTEST_PREFIX: usize = 3;

impl Search {
    fn new(shapes: impl IntoIterator<Item = Arc<Shape>>) -> Result<Self, CatalogueError> {
        let telling = |shape: &Arc<Shape>| shape.pattern.prefix().len() >= SHORTEST_PREFIX;
        let shapes: Vec<_> = shapes.into_iter().filter(telling).collect();
        let automaton = AhoCorasick::new(shapes.iter().map(|shape| shape.pattern.prefix()))?;
        Ok(Self { shapes, automaton: Some(automaton) })
    }

    fn find(&self, text: &[u8]) -> Option<&Arc<Shape>> {
        let hits = self.automaton.as_ref()?.find_overlapping_iter(text);
        let found = |(at, number): (usize, usize)| {
            let shape = self.shapes.get(number)?;
            let before = at.checked_sub(1).and_then(|before| text.get(before));
            let starts = !before.is_some_and(|before| pattern::is_word(*before));
            (starts && shape.pattern.starts(text.get(at..)?)).then_some(shape)
        };
        hits.map(|hit| (hit.start(), hit.pattern().as_usize())).find_map(found)
    }
}

#[cfg(test)]
mod tests;
