//! Memory of the sidecar at rest, and of connections that are open and silent.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::bed::{Bed, HOST};
use super::cpu;
use super::report::{Budget, Report};

const CONNECTIONS: usize = 500;

pub(super) fn measure(bed: &Bed, report: &mut Report) -> Result<()> {
    let sidecar = bed.stand.sidecar_pid()?;
    let before = cpu::resident(sidecar)?;
    // under a bound of its own: what one container opens is limited
    let mut child = Command::new("podman")
        .args(["exec", "--interactive", &bed.agent.name, "/program", "hold", "/run/understudy/ca.crt"])
        .arg(CONNECTIONS.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line)?;
    // what a handshake leaves behind for a moment is gone
    std::thread::sleep(Duration::from_secs(1));
    let after = cpu::resident(sidecar)?;
    drop(child.stdin.take());
    child.wait()?;
    ensure!(line.trim() == "held", "the connections could not be opened: {line}");
    report.section("memory of the sidecar");
    report.figure("idle, before its first request of note", before / 1024.0, "MiB", Budget::AtMost(12.0));
    let each = (after - before) / CONNECTIONS as f64;
    report.figure("each idle connection (one request was made on it)", each, "KiB", Budget::AtMost(40.0));
    Ok(())
}

/// Opens connections to the benchmark's host, makes one request on each, says `held`, and keeps them until stdin ends.
///
/// # Errors
/// If one of them is not answered with 200.
pub fn hold(authority: &Path, connections: usize) -> Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority)?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let held = (0..connections).map(|_| connect(&config)).collect::<Result<Vec<_>>>()?;
    println!("held");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(held);
    Ok(())
}

fn connect(config: &Arc<ClientConfig>) -> Result<StreamOwned<ClientConnection, std::net::TcpStream>> {
    let socket = std::net::TcpStream::connect((HOST, 443))?;
    let session = ClientConnection::new(config.clone(), HOST.try_into()?)?;
    let mut stream = StreamOwned::new(session, socket);
    write!(stream, "GET /small HTTP/1.1\r\nHost: {HOST}\r\n\r\n")?;
    let mut answer = vec![0; 4096];
    let mut length = 0;
    while !answer.get(..length).is_some_and(|answer| answer.ends_with(b"xxxxxxxx")) {
        let read = stream.read(answer.get_mut(length..).context("a longer answer")?)?;
        ensure!(read > 0, "closed before the answer");
        length += read;
    }
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "another status");
    Ok(stream)
}
