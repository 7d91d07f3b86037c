//! `probe`: what tests do in and to containers that no ordinary tool does.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use understudy_integration_tests::load::Load;
use understudy_integration_tests::search::Needles;

/// How long a process of a searched container may take to end, if it keeps everybody from looking at it.
const ENDING: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
enum Probe {
    /// Looks for values (one a line on standard input, plain and in their encodings) and prints where they are.
    /// Exit status 1 if any was found.
    Search(Search),
    /// Prints the answer to `GET https://HOST[:PORT]/PATH`: a static client that trusts SSL_CERT_FILE or the system's
    /// bundle, and knows no proxy variables.
    Fetch { url: String },
    /// Keep-alive requests over TLS; prints requests per second and latencies as JSON.
    Load(LoadArguments),
}

#[derive(Debug, clap::Args)]
struct LoadArguments {
    host: String,
    #[arg(long, default_value_t = 443)]
    port: u16,
    #[arg(long, default_value = "/status/200")]
    path: String,
    #[arg(long)]
    http2: bool,
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// On each connection.
    #[arg(long, default_value_t = 500)]
    requests: usize,
}

#[derive(Debug, clap::Args)]
struct Search {
    /// First process of a container: environment, command line and memory of all processes of its process namespace,
    /// and every file that it can see (but for /proc, /sys and /dev).
    #[arg(long)]
    container: Option<u32>,
    /// Directories and files, all that is in them.
    #[arg(long = "path")]
    paths: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Probe::parse() {
        Probe::Search(search) => search.run(),
        Probe::Fetch { url } => fetch(&url).map(|()| ExitCode::SUCCESS),
        Probe::Load(arguments) => load(arguments).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("probe: {error:#}");
        ExitCode::from(2)
    })
}

impl Search {
    fn run(self) -> Result<ExitCode> {
        let needles = Needles::new(std::io::read_to_string(std::io::stdin())?.lines())?;
        let mut found = BTreeSet::new();
        let mut looked = 0;
        for path in &self.paths {
            looked += search_tree(path, &needles, &mut found)?;
        }
        if let Some(first) = self.container {
            looked += search_container(first, &needles, &mut found)?;
            looked += search_root(&PathBuf::from(format!("/proc/{first}/root")), &needles, &mut found)?;
        }
        for place in &found {
            println!("{place}");
        }
        eprintln!("looked at {looked} places");
        Ok(ExitCode::from(u8::from(!found.is_empty())))
    }
}

fn search_tree(path: &Path, needles: &Needles, found: &mut BTreeSet<String>) -> Result<usize> {
    let meta = fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
    if needles.find(path.as_os_str().as_encoded_bytes()) {
        found.insert(format!("name {}", path.display()));
    }
    if meta.is_dir() {
        let mut looked = 0;
        for entry in fs::read_dir(path).with_context(|| path.display().to_string())? {
            looked += search_tree(&entry?.path(), needles, found)?;
        }
        return Ok(looked);
    }
    if meta.is_file() {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        if needles.find(&bytes) {
            found.insert(format!("file {}", path.display()));
        }
    }
    Ok(1)
}

/// What the container sees, its mounts included; what the kernel makes up is left out.
fn search_root(root: &Path, needles: &Needles, found: &mut BTreeSet<String>) -> Result<usize> {
    let mut looked = 0;
    for entry in fs::read_dir(root).with_context(|| root.display().to_string())? {
        let entry = entry?;
        if !["proc", "sys", "dev"].iter().any(|name| entry.file_name() == *name) {
            looked += search_tree(&entry.path(), needles, found)?;
        }
    }
    Ok(looked)
}

fn search_container(first: u32, needles: &Needles, found: &mut BTreeSet<String>) -> Result<usize> {
    let namespace = fs::read_link(format!("/proc/{first}/ns/pid")).context("the container does not run")?;
    let mut looked = 0;
    for entry in fs::read_dir("/proc")? {
        let process = entry?.path();
        let end = Instant::now() + ENDING;
        while lives_in(&process, &namespace) {
            match search_process(&process, needles, found) {
                Ok(more) => {
                    looked += more;
                    break;
                }
                // One that keeps everybody out, as Codex does, is looked at again until it has ended: what was in it is
                // nowhere then.
                Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(50)),
                Err(error) if lives_in(&process, &namespace) => {
                    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
                    return Err(error.context(status.lines().take(3).collect::<Vec<_>>().join(", ")));
                }
                Err(_) => {}
            }
        }
    }
    anyhow::ensure!(looked > 0, "no process of the container was found");
    Ok(looked)
}

/// One that has ended and is only not waited for yet (Z) has no environment and no memory any more, and cannot be looked at.
fn lives_in(process: &Path, namespace: &Path) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let is = |text: &str| status.lines().any(|line| line.starts_with(text));
    // Its first thread alone can have ended, too.
    let ended = is("State:\tX") || is("State:\tZ") && (is("Threads:\t1") || is("Threads:\t0"));
    !ended && fs::read_link(process.join("ns/pid")).is_ok_and(|own| own == namespace)
}

fn search_process(process: &Path, needles: &Needles, found: &mut BTreeSet<String>) -> Result<usize> {
    let mut looked = 0;
    for part in ["environ", "cmdline"] {
        let bytes = fs::read(process.join(part)).with_context(|| process.join(part).display().to_string())?;
        if needles.find(&bytes) {
            found.insert(format!("{part} of {}", process.display()));
        }
        looked += 1;
    }
    Ok(looked + search_memory(process, needles, found)?)
}

fn search_memory(process: &Path, needles: &Needles, found: &mut BTreeSet<String>) -> Result<usize> {
    use std::os::unix::fs::FileExt;
    let maps = fs::read_to_string(process.join("maps"))?;
    let memory =
        fs::File::open(process.join("mem")).with_context(|| format!("memory of {}", process.display()))?;
    let pages =
        fs::File::open(process.join("pagemap")).with_context(|| format!("pages of {}", process.display()))?;
    let mut looked = 0;
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-')).context("maps")?;
        let permissions = fields.next().context("maps")?;
        if !permissions.starts_with('r') {
            continue;
        }
        let private = permissions.ends_with('p') && fields.nth(2) == Some("0");
        let (start, end) = (u64::from_str_radix(range.0, 16)?, u64::from_str_radix(range.1, 16)?);
        // in pieces that overlap by more than the longest needle: some ranges are reserved and huge
        let mut buffer = vec![0; 4 << 20];
        let mut at = start;
        while at < end {
            let want = usize::try_from((end - at).min(buffer.len() as u64))?;
            // Programs reserve ranges of many gigabytes that nothing was ever written to.
            if private && !is_used(&pages, at, want)? {
                looked += 1;
                at += want as u64;
                continue;
            }
            // vvar and the like cannot be read
            let Ok(read) = memory.read_at(&mut buffer[..want], at) else { break };
            if needles.find(&buffer[..read]) {
                found.insert(format!("memory of {} ({})", process.display(), line));
            }
            looked += 1;
            if read < want || at + read as u64 == end {
                break;
            }
            at += (read - 4096) as u64;
        }
    }
    Ok(looked)
}

/// Whether any page of that memory was ever written: it is there, or swapped out (Documentation/admin-guide/mm/pagemap.rst).
fn is_used(pages: &fs::File, at: u64, length: usize) -> Result<bool> {
    use std::os::unix::fs::FileExt;
    const PAGE: u64 = 4096;
    let mut entries = vec![0; (length / PAGE as usize + 1) * 8];
    let read = pages.read_at(&mut entries, at / PAGE * 8)?;
    anyhow::ensure!(read >= length / PAGE as usize * 8, "pagemap is short");
    Ok(entries[..read].chunks_exact(8).any(|entry| entry[7] & 0b1100_0000 != 0))
}

fn load(arguments: LoadArguments) -> Result<()> {
    let LoadArguments { host, port, path, http2, connections, requests } = arguments;
    let load = Load { host, port, path, http2, connections, requests };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let figures = runtime.block_on(load.run(&bundle()))?;
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn bundle() -> PathBuf {
    std::env::var_os("SSL_CERT_FILE").map_or("/etc/ssl/certs/ca-certificates.crt".into(), PathBuf::from)
}

fn fetch(url: &str) -> Result<()> {
    let rest = url.strip_prefix("https://").context("only https://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.split_once(':').unwrap_or((authority, "443"));
    let bundle = bundle();
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&bundle).with_context(|| bundle.display().to_string())? {
        roots.add_parsable_certificates([certificate?]);
    }
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
    let session = rustls::ClientConnection::new(Arc::new(config), host.to_owned().try_into()?)?;
    let socket = TcpStream::connect((host, port.parse::<u16>()?)).with_context(|| authority.to_owned())?;
    let mut stream = rustls::StreamOwned::new(session, socket);
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => return Err(error.into()),
        _ => std::io::stdout().write_all(&answer)?,
    }
    Ok(())
}
