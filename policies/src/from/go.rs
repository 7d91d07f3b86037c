//! Go: `go.mod`, `go.work` and their sums name modules, `GOPROXY` the hosts that have them (go.dev/ref/mod#module-proxy).

use super::found::{Access, Found, Use};
use super::url::Url;

/// What they require, and what they put in the place of another module.
pub(super) fn module(found: &mut Found, text: &str) {
    let mut block = "";
    for (at, line) in text.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default().trim();
        let (verb, rest) = match line.split_once(char::is_whitespace) {
            Some((verb, "(")) => {
                block = verb;
                continue;
            }
            _ if line == ")" => {
                block = "";
                continue;
            }
            _ if !block.is_empty() => (block, line),
            Some(both) => both,
            None => continue,
        };
        let module = match verb {
            "require" => Some(rest),
            // `old v1 => new v2`, or a directory, which is no module.
            "replace" => rest.split_once("=>").map(|(_, new)| new).filter(|new| !is_directory(new.trim())),
            _ => None,
        };
        if let Some(module) = module.and_then(|line| line.split_whitespace().next()) {
            found.module(at + 1, module);
        }
    }
}

fn is_directory(new: &str) -> bool {
    new.starts_with(['.', '/', '"', '`'])
}

pub(super) fn sums(found: &mut Found, text: &str) {
    for (at, line) in text.lines().enumerate() {
        if let Some((module, _)) = line.split_once(' ') {
            found.module(at + 1, module);
        }
    }
}

/// Once all files are read.
pub(super) fn finish(found: &mut Found) {
    let mut modules = std::mem::take(&mut found.modules);
    modules.sort_by(|(a, _), (b, _)| a.cmp(b));
    modules.dedup_by(|(a, _), (b, _)| a == b);
    let proxies = std::mem::take(&mut found.proxies);
    let Some((_, first)) = modules.first() else { return };
    if proxies.is_empty() {
        return found.note(format!(
            "{first}: it names no host; what `go env GOPROXY GOSUMDB` says is asked, or, for modules in GOPRIVATE, the \
             module's own host"
        ));
    }
    found.note(format!(
        "{first}: sums are looked up where `go env GOSUMDB` says, through the proxy if it does that"
    ));
    for (proxy, place) in &proxies {
        match proxy.as_str() {
            "direct" => modules.iter().for_each(|(module, place)| direct(found, module, place)),
            url => through(found, url, place, &modules),
        }
    }
}

fn through(found: &mut Found, url: &str, place: &str, modules: &[(String, String)]) {
    let proxy = match Url::parse(url) {
        Ok(proxy) => proxy,
        Err(error) => return found.problem_at(place, &format!("GOPROXY: {error}")),
    };
    let base = proxy.path.trim_end_matches('/');
    for (module, place) in modules {
        let path = format!("{base}/{}", escaped(module));
        put(found, module, place, &proxy, Access::Below(path));
    }
}

/// From the module's own host: the repository of `host/owner/name/…`, and the page that tells where it is.
fn direct(found: &mut Found, module: &str, place: &str) {
    let Ok(own) = Url::parse(&format!("https://{module}")) else {
        return found.problem_at(place, "a module whose path is not a host and a path");
    };
    let mut parts = own.path.trim_matches('/').splitn(3, '/');
    if let (Some(owner), Some(name)) = (parts.next(), parts.next()) {
        put(found, module, place, &own, Access::Repository(format!("{owner}/{name}")));
    }
    let page = match own.path.as_str() {
        "/" => Access::File(own.path.clone()),
        path => Access::Below(path.trim_end_matches('/').to_owned()),
    };
    put(found, module, place, &own, page);
}

fn put(found: &mut Found, module: &str, place: &str, of: &Url, access: Access) {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-._~/!".contains(c);
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    // Without a dot in it, the first part is no host, and the module is of the standard library or of this project.
    let host = module.split('/').next().is_some_and(|host| host.contains('.'));
    if !host || !module.chars().all(letter) || !module.split('/').all(plain) {
        return found.problem_at(place, "not the path of a module");
    }
    found.push(Use { host: of.host.clone(), port: of.port, access, place: place.to_owned() });
}

/// Capitals as `!` and the small letter, as proxies want them.
fn escaped(module: &str) -> String {
    let letters = module.chars().map(|c| match c.is_ascii_uppercase() {
        true => format!("!{}", c.to_ascii_lowercase()),
        false => c.to_string(),
    });
    letters.collect()
}
