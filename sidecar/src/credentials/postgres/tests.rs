use super::super::catalogue::Catalogue;
use super::super::declaration::{Declaration, parse};
use super::super::fixture::{Values, vault};
use super::*;

const GOOD: &str = "[work]\nkind = \"postgres\"\nfile = \"/run/secrets/work\"\nhosts = \"db.example\"\nuser = \"app\"\n\
                    grant-to = { harnesses = [\"generic\"] }\n";
const PASSWORD: &str = "correct-horse-battery-staple";

fn read(text: &str) -> Result<Declaration, String> {
    let catalogue = Catalogue::new([]).unwrap();
    let read = parse("secrets.toml", text, &catalogue).map_err(|error| error.to_string())?;
    Ok(read.into_iter().next().unwrap())
}

#[test]
fn a_declaration_says_where_as_whom_and_how() {
    let declared = read(GOOD).unwrap();
    // It is in no request, so it binds no host of requests.
    assert!(declared.hosts.is_empty() && declared.placements.is_empty());
    let server = declared.postgres.unwrap();
    let (here, other) = ("db.example".parse().unwrap(), "other.example".parse().unwrap());
    assert!(server.is_at(&here, 5432) && !server.is_at(&here, 5433) && !server.is_at(&other, 5432));
    assert_eq!((server.user(), server.database(), server.is_over_tls()), ("app", None, true));
    assert!(server.may_ask_by(Method::Scram));
    assert!(!server.may_ask_by(Method::Md5) && !server.may_ask_by(Method::Password));
    let own = format!(
        "{}port = 6432\ndatabase = \"data\"\nauth = [\"md5\", \"password\"]\nsslmode = \"verify-full\"\n",
        GOOD.replace("\"db.example\"", "[\"a.example\", \"db.example\"]")
    );
    let server = read(&own).unwrap().postgres.unwrap();
    assert_eq!(server.shown_hosts(), ["a.example:6432", "db.example:6432"]);
    assert_eq!(server.database(), Some("data"));
    assert!(!server.may_ask_by(Method::Scram) && server.may_ask_by(Method::Password));
    let clear = read(&format!("{GOOD}sslmode = \"disable\"\n")).unwrap().postgres.unwrap();
    assert!(!clear.is_over_tls());
}

#[test]
fn mistakes_are_named_with_their_place_and_the_way_out() {
    for (from, to, said) in [
        ("user = \"app\"\n", "", "1:1: missing field `user`"),
        ("hosts = \"db.example\"\n", "", "1:1: missing field `hosts`"),
        ("\"db.example\"", "[]", "4:9: `hosts` is empty"),
        (
            "db.example",
            "*.example",
            "4:9: `hosts`: \"*.example\": each server of a password is named in full",
        ),
        ("hosts", "port = 0\nhosts", "4:8: `port` must be 1 to 65535"),
        ("\"app\"", "\"\"", "5:8: `user` must be 1 to 63 bytes"),
        ("hosts", "database = \"a\\u0000b\"\nhosts", "4:12: `database` must be"),
        ("hosts", "sslmode = \"require\"\nhosts", "4:11: `sslmode` is \"verify-full\" (as without it) or"),
        ("hosts", "auth = \"scram\"\nhosts", "4:8: `auth` is some of \"scram-sha-256\""),
        ("hosts", "auth = []\nhosts", "4:8: `auth` is empty"),
        (
            "hosts",
            "sslmode = \"disable\"\nauth = [\"scram-sha-256\", \"md5\"]\nhosts",
            "5:8: `auth`: md5 tells whoever listens, so it needs `sslmode = \"verify-full\"`",
        ),
        ("hosts", "placements = \"bearer\"\nhosts", "4:14: `placements` is not for `kind = \"postgres\"`"),
        ("hosts", "host-keys = \"x\"\nhosts", "4:13: `host-keys` is not for `kind = \"postgres\"`"),
        ("hosts", "services = \"s3\"\nhosts", "4:12: `services` is"),
        ("postgres", "postgers", "2:8: unknown value; did you mean `postgres`?"),
        (
            "kind = \"postgres\"",
            "kind = \"bearer\"",
            "5:8: `user` is for `kind = \"ssh-key\"` and `\"postgres\"`",
        ),
        (
            "kind = \"postgres\"",
            "kind = \"bearer\"\nsslmode = \"disable\"",
            "3:11: `sslmode` is for `kind = \"postgres\"`; leave it out",
        ),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD);
        let error = read(&text).unwrap_err();
        assert!(error.starts_with(&format!("secrets.toml:{said}")), "{error}\nexpected {said}");
    }
}

#[test]
fn a_stand_in_has_the_passwords_length_and_nothing_else_of_it() {
    let vault = vault(GOOD, &Values::from([("work", PASSWORD)]));
    let secret = vault.secret("work").unwrap();
    let stand_in = secret.stand_in();
    assert_eq!(stand_in.len(), PASSWORD.len());
    assert!(stand_in.bytes().all(|b| b.is_ascii_alphanumeric()) && vault.is_marked(stand_in.as_bytes()));
    assert_eq!(format!("{:?}", secret.postgres_password().unwrap()), "Password(..)");
    // What people paste along with tokens of HTTP belongs to a password.
    let bearer =
        super::super::fixture::vault(GOOD, &Values::from([("work", "Bearer correct-horse-battery")]));
    assert!(bearer.secret("work").is_none(), "it has a space in it");
    let short = super::super::fixture::vault(GOOD, &Values::from([("work", "hunter2")]));
    assert!(short.unusable()[0].error().contains("7 characters; at least 16"), "{:?}", short.unusable());
}

#[test]
fn a_container_has_the_variables_of_libpq_or_one_url_and_a_file_of_passwords() {
    let of = |more: &str| read(&format!("{GOOD}{more}")).unwrap().postgres.unwrap();
    let given = |server: &Server, variable| {
        let env = environment(server, variable, "standin");
        env.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let server = of("database = \"data\"\n");
    assert_eq!(
        given(&server, None),
        ["PGHOST=db.example", "PGPORT=5432", "PGUSER=app", "PGPASSWORD=standin", "PGDATABASE=data"]
    );
    assert_eq!(given(&of(""), None).len(), 4);
    let url = "DATABASE_URL=postgresql://app:standin@db.example:5432/data";
    assert_eq!(given(&server, Some("DATABASE_URL")), [url]);
    let odd = read(&GOOD.replace("\"app\"", "\"a:b\\\\@c\"")).unwrap().postgres.unwrap();
    assert_eq!(given(&odd, Some("U")), ["U=postgresql://a%3Ab%5C%40c:standin@db.example:5432"]);
    let file = passfile([(&server, "one"), (&odd, "two")].into_iter()).unwrap();
    assert_eq!((file.path.as_str(), file.mode), ("~/.pgpass", 0o600));
    assert_eq!(file.content, "db.example:5432:*:app:one\ndb.example:5432:*:a\\:b\\\\@c:two\n");
    assert!(passfile(std::iter::empty()).is_none());
}
