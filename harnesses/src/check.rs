//! What the schema alone cannot say about a descriptor.

use crate::{Descriptor, Purpose, SecretKind, Template, Write};

/// The first thing that is wrong.
pub(crate) fn descriptor(descriptor: &Descriptor) -> Result<(), String> {
    name(&descriptor.name)?;
    if descriptor.harness_only.contains(&Purpose::Telemetry) {
        return Err("`harness-only` must not contain `telemetry`: it is never allowed by default".to_owned());
    }
    match (&descriptor.unproven, descriptor.proven.as_slice()) {
        (None, []) => return Err("`proven` names no version, so `unproven` must say why".to_owned()),
        (Some(_), [_, ..]) => return Err("`unproven` is for a descriptor whose `proven` is empty".to_owned()),
        _ => {}
    }
    privacy(descriptor)?;
    let known = Purpose::ALL.iter().flat_map(|purpose| descriptor.hosts.of(*purpose));
    let known: Vec<_> = known.map(|pattern| &pattern.0).collect();
    for named in &descriptor.named_hosts {
        let of_login = descriptor.logins.iter().flat_map(|login| &login.hosts).map(|pattern| &pattern.0);
        if !known.iter().copied().chain(of_login).any(|pattern| pattern.matches(&named.endpoint.host)) {
            return Err(format!("named-host: `{}` is at none of the program's hosts", named.endpoint));
        }
        if named.within.is_empty() || !named.field.starts_with('/') {
            return Err(
                "named-host: `field` is a JSON pointer, and `within` says what it may name".to_owned()
            );
        }
    }
    for login in &descriptor.logins {
        let mut known = known.iter().copied().chain(login.hosts.iter().map(|pattern| &pattern.0));
        if !known.any(|pattern| pattern.matches(&login.host)) {
            return Err(format!(
                "login `{}`: `host` `{}` is in none of `[hosts]`, nor in its own `hosts`",
                login.name, login.host
            ));
        }
        if login.env.is_empty() && login.files.is_empty() {
            return Err(format!("login `{}` has neither `env` nor a file, so it gives nothing", login.name));
        }
        let mut contents = login.env.values().chain(login.files.iter().map(|file| &file.content));
        if login.kind != SecretKind::Oauth && contents.any(Template::needs_account) {
            return Err(format!(
                "login `{}`: `{{stand-in:refresh}}`, `{{stand-in:id}}` and `{{account:…}}` are for `kind = \"oauth\"`",
                login.name
            ));
        }
    }
    let login_files = descriptor.logins.iter().flat_map(|login| &login.files);
    let level_files = descriptor.privacy.levels.values().flat_map(|level| &level.files);
    for file in descriptor.files.iter().chain(level_files.clone()).chain(login_files) {
        path(&file.path)?;
        if file.mode & !0o777 != 0 {
            return Err(format!(
                "file `{}`: `mode` has more than permission bits; write it as 0o600",
                file.path
            ));
        }
        if matches!(file.write, Write::MergeJson) {
            file.content
                .json_object()
                .map_err(|error| format!("file `{}`: `content`: {error}", file.path))?;
        }
        if matches!(file.write, Write::FillToml) {
            toml::from_str::<toml::Table>(file.content.source())
                .map_err(|error| format!("file `{}`: `content`: {}", file.path, error.message()))?;
            if file.content.needs_stand_in() {
                return Err(format!("file `{}`: a stand-in cannot be put into TOML", file.path));
            }
        }
        if matches!(file.write, Write::MergeEnv) {
            let lines = file.content.source().lines();
            for line in lines {
                let key = line.split_once('=').map_or(line, |(key, _)| key);
                variable(key).map_err(|error| format!("file `{}`: `content`: {error}", file.path))?;
            }
        }
    }
    if let Some(file) = descriptor.files.iter().chain(level_files).find(|file| file.content.needs_stand_in())
    {
        return Err(format!("file `{}`: a stand-in can be placed by a `[[login.file]]` only", file.path));
    }
    for file in &descriptor.login_files {
        path(&file.path)?;
        if let Some(pointer) = file.pointers.iter().find(|pointer| !is_pointer(pointer)) {
            return Err(format!(
                "login file `{}`: `{pointer}` is neither a JSON pointer, which starts with `/`, nor `env:KEY`, \
                 `yaml:KEY`, `url` or `netrc`",
                file.path
            ));
        }
    }
    for moved in &descriptor.moved {
        variable(&moved.by)?;
        path(&moved.from)?;
        if !moved.to.is_empty() {
            path(&format!("/{}", moved.to)).map_err(|_| {
                format!("moved by `{}`: `to` must be a path below the variable's directory, as `agent` or `agent/auth.json`", moved.by)
            })?;
        }
    }
    for file in &descriptor.instructions {
        path(file)?;
    }
    let traps = descriptor.traps.iter().chain(descriptor.logins.iter().flat_map(|login| &login.traps));
    let levels = descriptor.privacy.levels.values().flat_map(|level| level.env.keys());
    let logins = descriptor.logins.iter().flat_map(|login| login.env.keys());
    let always = descriptor.env.keys();
    always.chain(levels).chain(logins).chain(traps.map(|trap| &trap.env)).try_for_each(|name| variable(name))
}

fn is_pointer(text: &str) -> bool {
    let yaml =
        |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    matches!(text, "url" | "netrc")
        || text.starts_with('/')
        || text.strip_prefix("env:").is_some_and(|key| variable(key).is_ok())
        || text.strip_prefix("yaml:").is_some_and(yaml)
}

fn privacy(descriptor: &Descriptor) -> Result<(), String> {
    let (default, levels) = (&descriptor.privacy.default, &descriptor.privacy.levels);
    let Some(level) = levels.get(default) else {
        return Err(format!("privacy: there is no level `{default}`, the default"));
    };
    let base = level.extends.as_ref().and_then(|base| levels.get(base));
    if [Some(level), base].into_iter().flatten().any(|level| level.hosts.contains(&Purpose::Telemetry)) {
        return Err(format!("privacy level `{default}`, the default, must not have `telemetry` in `hosts`"));
    }
    for (name, level) in levels {
        let Some(base) = &level.extends else { continue };
        match levels.get(base) {
            None => return Err(format!("privacy level `{name}` extends `{base}`, which does not exist")),
            Some(base) if base.extends.is_some() => {
                return Err(format!(
                    "privacy level `{name}` extends a level that extends another; one step only"
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn name(name: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || !name.bytes().all(plain) {
        return Err("`name` must be lower-case letters, digits and `-`".to_owned());
    }
    Ok(())
}

fn path(path: &str) -> Result<(), String> {
    let from_home = path.strip_prefix("~/");
    let below = from_home.or_else(|| path.strip_prefix('/'));
    let clean = below.is_some_and(|below| below.split('/').all(|part| !matches!(part, "" | "." | "..")));
    if clean {
        Ok(())
    } else {
        Err(format!("path `{path}` must be absolute or `~/…`, without `.` and `..`"))
    }
}

fn variable(name: &str) -> Result<(), String> {
    let valid = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if valid { Ok(()) } else { Err(format!("`{name}` is not the name of an environment variable")) }
}
