//! What an unmodified client finds in a container: the variables of libpq, or one URL, and a file of passwords.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use understudy_control::{LoginFile, PlacedFile, Write};

use super::Server;

/// Where libpq looks for passwords by host, port, database and user.
const PASSFILE: &str = "~/.pgpass";
/// In the words of `place`: what its lines end with.
const PGPASS: &str = "pgpass";

/// Of a secret that names a variable, that one with a URL; of another one, those that libpq reads (`PGHOST` …).
pub(in crate::credentials) fn environment(
    server: &Server,
    variable: Option<&str>,
    stand_in: &str,
) -> Vec<(String, String)> {
    let host = server.hosts().first().map(ToString::to_string).unwrap_or_default();
    if let Some(variable) = variable {
        let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let database = server.database().map(|name| format!("/{}", escaped(name))).unwrap_or_default();
        let (user, port) = (escaped(server.user()), server.port());
        let url = format!("postgresql://{user}:{stand_in}@{host}:{port}{database}");
        return vec![(variable.to_owned(), url)];
    }
    let named = [
        ("PGHOST", Some(host)),
        ("PGPORT", Some(server.port().to_string())),
        ("PGUSER", Some(server.user().to_owned())),
        ("PGPASSWORD", Some(stand_in.to_owned())),
        ("PGDATABASE", server.database().map(str::to_owned)),
    ];
    named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// A real password there is not passed over: the container is refused.
pub fn login_file() -> LoginFile {
    LoginFile { path: PASSFILE.to_owned(), pointers: vec![PGPASS.to_owned()] }
}

/// For several secrets at once, and for clients that are told of host and user otherwise.
pub fn passfile<'s>(of: impl Iterator<Item = (&'s Server, &'s str)>) -> Option<PlacedFile> {
    // libpq's own escape.
    let escaped = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:");
    let mut content = String::new();
    for (server, stand_in) in of {
        for host in server.hosts() {
            let (port, user) = (server.port(), escaped(server.user()));
            content.push_str(&format!("{host}:{port}:*:{user}:{stand_in}\n"));
        }
    }
    let file = PlacedFile { path: PASSFILE.to_owned(), mode: 0o600, write: Write::MergeLines, content };
    (!file.content.is_empty()).then_some(file)
}
