//! What a GitHub App's token may say, and what it is good for
//! (<https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app>). Pure.

use http::Method;

use super::claims::{self, ClaimError};
use super::unique::Members;

/// Ten minutes, in seconds.
const LONGEST: i64 = 600;

const KNOWN: [&str; 5] = ["iss", "iat", "exp", "nbf", "jti"];

/// A request with the token of an App.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// About the App, or which installation is whose.
    About,
    /// For the token of an installation.
    Token,
}

pub(super) fn check(claims: &Members, ids: &[String], now: i64) -> Result<(), ClaimError> {
    claims::only(claims, &KNOWN)?;
    if !claims::issuer(claims).is_some_and(|issuer| ids.contains(&issuer)) {
        return Err(ClaimError::Wrong("iss"));
    }
    claims::times(claims, now, LONGEST)
}

/// An error is why not. On a server of one's own all is below `/api/v3`.
pub(super) fn asks(method: &Method, path: &str, installations: &[u64]) -> Result<Asks, String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/');
    let path = path.strip_prefix("/api/v3").filter(|rest| rest.starts_with('/')).unwrap_or(path);
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    if !path.bytes().all(plain) || segments.iter().any(|segment| matches!(*segment, "" | "." | "..")) {
        return Err(
            "its path must be written plainly: letters, digits, `-`, `_`, `.`, without an empty segment"
                .to_owned(),
        );
    }
    let of = |id: &str| {
        // One number is written in one way.
        let number: Option<u64> = id.parse().ok().filter(|number: &u64| number.to_string() == id);
        match number {
            None => Err("the number of the installation must be written plainly".to_owned()),
            Some(number) if !installations.is_empty() && !installations.contains(&number) => {
                let all: Vec<String> = installations.iter().map(u64::to_string).collect();
                Err(format!(
                    "it is for installations {}; for {number}, add that to `installations`",
                    all.join(", ")
                ))
            }
            Some(_) => Ok(()),
        }
    };
    // Each that is known, in its one spelling: what is not recognised is not signed. The App's webhook is left out: it tells of
    // every installation, and who changes it is told of them.
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    match (method.as_str(), segments.as_slice()) {
        ("POST", ["app", "installations", id, "access_tokens"]) => of(id).map(|()| Asks::Token),
        ("GET" | "DELETE", ["app", "installations", id]) => of(id).map(|()| Asks::About),
        ("PUT" | "DELETE", ["app", "installations", id, "suspended"]) => of(id).map(|()| Asks::About),
        ("GET", ["app"] | ["app", "installations" | "installation-requests"]) => Ok(Asks::About),
        (
            "GET",
            ["repos", _, _, "installation"] | ["orgs" | "users" | "enterprises", _, "installation"],
        ) => Ok(Asks::About),
        _ => Err("the token of an App is for `/app`, its installations, and `…/installation`; elsewhere, use an installation's"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_whose_it_is_and_no_more() {
        let (now, ids) = (1_800_000_000, ["12345".to_owned(), "Iv23liABC".to_owned()]);
        let checked = |text: &str| check(&Members::parse(text.as_bytes()).unwrap(), &ids, now);
        for fine in ["12345", "\"12345\"", "\"Iv23liABC\""] {
            let claims = format!("{{\"iss\":{fine},\"iat\":1799999940,\"exp\":1800000540}}");
            assert_eq!(checked(&claims), Ok(()), "{claims}");
        }
        for (claims, error) in [
            (r#"{"iss":1234,"iat":1800000000,"exp":1800000540}"#, ClaimError::Wrong("iss")),
            (r#"{"iss":12345.0,"iat":1800000000,"exp":1800000540}"#, ClaimError::Wrong("iss")),
            (r#"{"iss":["12345"],"iat":1800000000,"exp":1800000540}"#, ClaimError::Wrong("iss")),
            (r#"{"iat":1800000000,"exp":1800000540}"#, ClaimError::Wrong("iss")),
            (r#"{"iss":12345,"iat":1800000000,"exp":1800003600}"#, ClaimError::Long(10)),
            (r#"{"iss":12345,"iat":1800000000,"exp":1800000540,"x":1}"#, ClaimError::Unknown("x".to_owned())),
        ] {
            assert_eq!(checked(claims), Err(error), "{claims}");
        }
    }

    #[test]
    fn it_is_for_the_app_and_its_installations() {
        let asked = |method: Method, path: &str, installations: &[u64]| asks(&method, path, installations);
        for (method, path, asks) in [
            (Method::GET, "/app", Asks::About),
            (Method::HEAD, "/app", Asks::About),
            (Method::GET, "/app/installations", Asks::About),
            (Method::GET, "/app/installations/7", Asks::About),
            (Method::PUT, "/app/installations/7/suspended", Asks::About),
            (Method::POST, "/app/installations/7/access_tokens", Asks::Token),
            (Method::POST, "/api/v3/app/installations/7/access_tokens", Asks::Token),
            (Method::GET, "/repos/o/r.s/installation", Asks::About),
            (Method::GET, "/orgs/o/installation", Asks::About),
        ] {
            assert_eq!(asked(method, path, &[7]), Ok(asks), "{path}");
        }
        let other = Method::from_bytes(b"post").unwrap();
        for (method, path) in [
            (other, "/app/installations/7/access_tokens"),
            (Method::GET, "/app/installations/7/access_tokens"),
            (Method::GET, "/app/hook/deliveries"),
            (Method::PATCH, "/app/hook/config"),
            (Method::PATCH, "/api/v3/app/hook/config"),
            (Method::GET, "/api/v3x/app/installations"),
            (Method::GET, "/app/Installations/7"),
        ] {
            assert!(asked(method.clone(), path, &[]).is_err(), "{method} {path}");
        }
        for path in [
            "/app/Installations/7/access_tokens",
            "/app/installations/7/access_tokens.json",
            "/app/installations/8/access_tokens",
            "/app/installations/8",
            "/app/installations/07/access_tokens",
            "/app/installations/+7/access_tokens",
            "/app/installations/7/access_tokens/",
            "/app/installations/7/%61ccess_tokens",
            "/app//installations/7",
            "/app/../user",
            "/user",
            "/repos/o/r",
            "/graphql",
            "/application",
            "/",
        ] {
            assert!(asked(Method::POST, path, &[7]).is_err(), "{path}");
        }
    }
}
