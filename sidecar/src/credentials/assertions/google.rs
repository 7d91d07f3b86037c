//! What a service account's token may say: as an assertion at a token endpoint
//! (<https://developers.google.com/identity/protocols/oauth2/service-account>), and by itself at an API
//! (<https://google.aip.dev/auth/4111>). Pure.

use http::Uri;
use understudy_policies::{HostName, HostPattern};

use super::claims::{self, ClaimError};
use super::unique::Members;

/// An hour, in seconds.
const LONGEST: i64 = 3600;

/// What most clients say, whatever the file of the key does.
pub(super) const USUAL_ENDPOINT: &str = "https://oauth2.googleapis.com/token";

const KNOWN: [&str; 9] = ["iss", "sub", "aud", "exp", "iat", "nbf", "jti", "scope", "target_audience"];

/// Why a token is not signed again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error("its `aud` must be {0}")]
    Audience(String),
    /// Beyond what the operator lets the key be used for.
    #[error("{0}")]
    Restricted(String),
}

/// What the declaration lets it say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits<'b> {
    pub(super) email: &'b str,
    pub(super) scopes: &'b [String],
    pub(super) subjects: &'b [String],
}

impl Limits<'_> {
    /// For the token endpoint `audience`.
    pub(super) fn assertion(&self, claims: &Members, audience: &str, now: i64) -> Result<(), Refused> {
        self.common(claims, now)?;
        let said = claims::text(claims, "aud")?;
        if said != Some(audience) && said != Some(USUAL_ENDPOINT) {
            return Err(Refused::Audience(format!("\"{audience}\" here")));
        }
        let scope = claims::text(claims, "scope")?;
        let target = claims::text(claims, "target_audience")?;
        match (scope, target) {
            (Some(scope), None) => self.scopes(scope),
            (None, Some(_)) if self.scopes.is_empty() => Ok(()),
            (None, Some(_)) => Err(Refused::Restricted(
                "the secret is for some `scopes` only, and an ID token has none".to_owned(),
            )),
            (None, None) => Err(ClaimError::Missing("scope").into()),
            (Some(_), Some(_)) => Err(ClaimError::Wrong("target_audience").into()),
        }
    }

    /// By itself, at one of the secret's hosts but the token endpoint's.
    pub(super) fn bearer(
        &self,
        claims: &Members,
        hosts: &[HostPattern],
        endpoint: &HostName,
        now: i64,
    ) -> Result<(), Refused> {
        self.common(claims, now)?;
        if claims.get("target_audience").is_some() {
            return Err(ClaimError::Wrong("target_audience").into());
        }
        match (claims::text(claims, "scope")?, claims::text(claims, "aud")?) {
            (Some(scope), None) => self.scopes(scope),
            (Some(_), Some(_)) => Err(Refused::Audience("left out beside `scope`".to_owned())),
            (None, None) => Err(ClaimError::Missing("scope").into()),
            (None, Some(audience)) => {
                let host = of_url(audience).filter(|host| host != endpoint);
                if !host.is_some_and(|host| hosts.iter().any(|pattern| pattern.matches(&host))) {
                    return Err(Refused::Audience("the https URL of one of the secret's `hosts`".to_owned()));
                }
                match self.scopes.is_empty() {
                    true => Ok(()),
                    false => Err(Refused::Restricted(
                        "the secret is for some `scopes` only; sign with `scope` instead of `aud`".to_owned(),
                    )),
                }
            }
        }
    }

    fn common(&self, claims: &Members, now: i64) -> Result<(), Refused> {
        claims::only(claims, &KNOWN)?;
        if claims::text(claims, "iss")? != Some(self.email) {
            return Err(ClaimError::Wrong("iss").into());
        }
        claims::times(claims, now, LONGEST)?;
        match claims::text(claims, "sub")? {
            None => Ok(()),
            Some(subject) if subject == self.email || self.subjects.iter().any(|known| known == subject) => {
                Ok(())
            }
            Some(_) => Err(Refused::Restricted(
                "it acts for somebody else (`sub`); if it may, name them in `subjects` of the secret"
                    .to_owned(),
            )),
        }
    }

    fn scopes(&self, asked: &str) -> Result<(), Refused> {
        let mut asked = asked.split(' ').filter(|scope| !scope.is_empty()).peekable();
        if asked.peek().is_none() {
            return Err(ClaimError::Wrong("scope").into());
        }
        match asked.all(|scope| self.scopes.is_empty() || self.scopes.iter().any(|known| known == scope)) {
            true => Ok(()),
            false => Err(Refused::Restricted(format!(
                "it asks for more than the secret's `scopes`: {}",
                self.scopes.join(", ")
            ))),
        }
    }
}

/// The host of an https URL at its usual port.
fn of_url(text: &str) -> Option<HostName> {
    let uri: Uri = text.parse().ok()?;
    let plain = uri.scheme_str() == Some("https") && uri.port().is_none() && !text.contains('@');
    uri.host().filter(|_| plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMAIL: &str = "agent@project.iam.gserviceaccount.com";
    const ENDPOINT: &str = "https://oauth2.googleapis.com/token";
    const NOW: i64 = 1_800_000_000;

    fn claims(more: &str) -> Members {
        let text = format!("{{\"iss\":\"{EMAIL}\",\"iat\":{NOW},\"exp\":{},{more}}}", NOW + 3600);
        Members::parse(text.as_bytes()).unwrap()
    }

    fn said<T: std::fmt::Debug>(result: Result<T, Refused>) -> String {
        result.map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn an_assertion_is_for_its_endpoint_and_asks_for_what_it_may() {
        let (all, some) = ([], ["a".to_owned(), "b".to_owned()]);
        let subjects = ["boss@example.com".to_owned()];
        let wide = Limits { email: EMAIL, scopes: &all, subjects: &[] };
        let narrow = Limits { email: EMAIL, scopes: &some, subjects: &subjects };
        for (limits, more, expected) in [
            (wide, r#""aud":"URL","scope":"x y""#, ""),
            (wide, r#""aud":"URL","target_audience":"https://x""#, ""),
            (wide, r#""aud":"URL","scope":"x","sub":"EMAIL""#, ""),
            (narrow, r#""aud":"URL","scope":"b a","sub":"boss@example.com""#, ""),
            (wide, r#""aud":"URL","scope":"x","sub":"boss@example.com""#, "acts for somebody else"),
            (narrow, r#""aud":"URL","scope":"a c""#, "more than the secret's `scopes`: a, b"),
            (narrow, r#""aud":"URL","scope":"a\tc""#, "more than"),
            (narrow, r#""aud":"URL","target_audience":"https://x""#, "an ID token has none"),
            (wide, r#""aud":"URL/","scope":"x""#, "`aud` must be"),
            (wide, r#""aud":["URL"],"scope":"x""#, "claim `aud`"),
            (wide, r#""scope":"x""#, "`aud` must be"),
            (wide, r#""aud":"URL""#, "`scope` is missing"),
            (wide, r#""aud":"URL","scope":" ""#, "claim `scope`"),
            (wide, r#""aud":"URL","scope":"x","target_audience":"y""#, "target_audience"),
            (wide, r#""aud":"URL","scope":"x","prn":"y""#, "`prn` is not one that is understood"),
        ] {
            let claims = claims(&more.replace("URL", ENDPOINT).replace("EMAIL", EMAIL));
            let found = said(limits.assertion(&claims, ENDPOINT, NOW));
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{more}: {found}");
        }
        let other = Limits { email: "other@example.com", ..wide };
        assert!(said(other.assertion(&claims("\"aud\":\"x\""), ENDPOINT, NOW)).contains("`iss`"));
        let late = said(wide.assertion(&claims(&format!("\"aud\":\"{ENDPOINT}\"")), ENDPOINT, NOW + 3600));
        assert!(late.contains("expired"), "{late}");
    }

    #[test]
    fn by_itself_it_is_for_one_of_the_hosts() {
        let hosts: [HostPattern; 1] = ["*.googleapis.com".parse().unwrap()];
        let endpoint = "oauth2.googleapis.com".parse().unwrap();
        let some = ["a".to_owned()];
        let wide = Limits { email: EMAIL, scopes: &[], subjects: &[] };
        let narrow = Limits { scopes: &some, ..wide };
        for (limits, more, expected) in [
            (wide, r#""aud":"https://storage.googleapis.com/""#, ""),
            (wide, r#""aud":"https://pubsub.googleapis.com/google.pubsub.v1.Publisher","sub":"EMAIL""#, ""),
            (narrow, r#""scope":"a""#, ""),
            (narrow, r#""scope":"b""#, "more than"),
            (narrow, r#""aud":"https://storage.googleapis.com/""#, "instead of `aud`"),
            (wide, r#""aud":"https://oauth2.googleapis.com/token""#, "`aud` must be"),
            (wide, r#""aud":"https://storage.googleapis.com.evil.example/""#, "`aud` must be"),
            (wide, r#""aud":"https://storage.googleapis.com@evil.example/""#, "`aud` must be"),
            (wide, r#""aud":"http://storage.googleapis.com/""#, "`aud` must be"),
            (wide, r#""aud":"https://storage.googleapis.com/","scope":"a""#, "left out"),
            (wide, r#""sub":"EMAIL""#, "`scope` is missing"),
            (wide, r#""target_audience":"https://x""#, "target_audience"),
        ] {
            let claims = claims(&more.replace("EMAIL", EMAIL));
            let found = said(limits.bearer(&claims, &hosts, &endpoint, NOW));
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{more}: {found}");
        }
    }
}
