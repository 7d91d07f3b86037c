//! Where a password logs in, as whom, and how it may be asked for.

use toml::Spanned;
use understudy_policies::HostName;
use understudy_policies::document::OneOrMany;

use super::super::servers::Servers;

/// The port of PostgreSQL.
const PORT: u16 = 5432;
/// The longest name of PostgreSQL (NAMEDATALEN).
const LONGEST: usize = 63;

/// Of one secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    servers: Servers,
    user: String,
    database: Option<String>,
    tls: bool,
    methods: Vec<Method>,
}

/// How a server may ask for the password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Nobody who listens, nor the server, learns it.
    Scram,
    /// What can be guessed from, and replayed where the password is stored so.
    Md5,
    /// As it is.
    Password,
}

/// How somebody logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub over_tls: bool,
    pub by: Method,
}

/// The keys of a declaration that are about it.
pub(in crate::credentials) struct Written<'a> {
    pub(in crate::credentials) hosts: &'a Option<Spanned<OneOrMany<String>>>,
    pub(in crate::credentials) port: Option<Spanned<u16>>,
    pub(in crate::credentials) user: Option<Spanned<String>>,
    pub(in crate::credentials) database: Option<Spanned<String>>,
    pub(in crate::credentials) sslmode: Option<Spanned<String>>,
    pub(in crate::credentials) auth: Option<Spanned<OneOrMany<String>>>,
}

impl Server {
    pub fn is_at(&self, host: &HostName, port: u16) -> bool {
        self.servers.is_at(host, port)
    }

    pub fn hosts(&self) -> &[HostName] {
        self.servers.hosts()
    }

    pub fn port(&self) -> u16 {
        self.servers.port()
    }

    /// As whom it logs in.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// What clients connect to that name none.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// Whether the server has to show a certificate for its name.
    pub fn is_over_tls(&self) -> bool {
        self.tls
    }

    pub fn may_ask_by(&self, method: Method) -> bool {
        self.methods.contains(&method)
    }

    /// Whether one may log in so.
    pub fn allows(&self, login: &Login) -> bool {
        self.user == login.user && (login.over_tls || !self.tls) && self.may_ask_by(login.by)
    }

    /// `db.example.com`, or `db.example.com:6432`.
    pub fn shown_hosts(&self) -> Vec<String> {
        self.servers.shown()
    }
}

impl Method {
    const ALL: [Self; 3] = [Self::Scram, Self::Md5, Self::Password];

    /// As in `pg_hba.conf`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scram => "scram-sha-256",
            Self::Md5 => "md5",
            Self::Password => "password",
        }
    }
}

impl Written<'_> {
    /// `at` is where the secret's table begins. An error is a place in the file and what is wrong there.
    pub(in crate::credentials) fn server(self, at: usize) -> Result<Server, (usize, String)> {
        let servers = Servers::read(self.hosts.as_ref(), self.port.as_ref(), PORT, at, "a password")?;
        let user = self.user.ok_or_else(|| (at, "missing field `user`: the role that logs in".to_owned()))?;
        let user = name("user", user)?;
        let database = self.database.map(|database| name("database", database)).transpose()?;
        let tls = match self.sslmode {
            None => true,
            Some(mode) => match mode.get_ref().as_str() {
                "verify-full" => true,
                "disable" => false,
                _ => {
                    let message = "`sslmode` is \"verify-full\" (as without it) or, on a network that you trust with what \
                                   passes there, \"disable\"; what is between proves nothing";
                    return Err((mode.span().start, message.to_owned()));
                }
            },
        };
        let methods = match self.auth {
            None => vec![Method::Scram],
            Some(written) => methods(&written, tls)?,
        };
        Ok(Server { servers, user, database, tls, methods })
    }

    /// For a secret of another kind.
    pub(in crate::credentials) fn none(&self) -> Result<(), (usize, String)> {
        let at = |key: &str, start: Option<usize>| {
            start.map(|at| (at, format!("`{key}` is for `kind = \"postgres\"`; leave it out")))
        };
        let database = at("database", self.database.as_ref().map(|key| key.span().start));
        let sslmode = at("sslmode", self.sslmode.as_ref().map(|key| key.span().start));
        let auth = at("auth", self.auth.as_ref().map(|key| key.span().start));
        database.or(sslmode).or(auth).map_or(Ok(()), Err)
    }
}

fn methods(written: &Spanned<OneOrMany<String>>, tls: bool) -> Result<Vec<Method>, (usize, String)> {
    let at = written.span().start;
    let method = |text: &String| {
        let found = Method::ALL.into_iter().find(|method| method.as_str() == text);
        found.ok_or_else(|| {
            (at, "`auth` is some of \"scram-sha-256\" (as without it), \"md5\", \"password\"".to_owned())
        })
    };
    let methods: Vec<Method> = written.get_ref().0.iter().map(method).collect::<Result<_, _>>()?;
    if methods.is_empty() {
        return Err((at, "`auth` is empty, so the secret could never be used".to_owned()));
    }
    match methods.iter().find(|method| **method != Method::Scram).filter(|_| !tls) {
        Some(method) => Err((
            at,
            format!(
                "`auth`: {} tells whoever listens, so it needs `sslmode = \"verify-full\"`",
                method.as_str()
            ),
        )),
        None => Ok(methods),
    }
}

fn name(key: &str, written: Spanned<String>) -> Result<String, (usize, String)> {
    let at = written.span().start;
    let name = written.into_inner();
    match (1..=LONGEST).contains(&name.len()) && !name.contains(char::is_control) {
        true => Ok(name),
        false => Err((at, format!("`{key}` must be 1 to {LONGEST} bytes without control characters"))),
    }
}
