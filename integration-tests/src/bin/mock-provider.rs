//! `mock-provider`: every host of the internet, for tests and the demo (see the library's `mock`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use understudy_integration_tests::mock::{self, Options};

#[derive(Debug, Parser)]
struct Arguments {
    /// Address of all listeners.
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
    /// TLS ports with h2 and http/1.1.
    #[arg(long, value_delimiter = ',', default_value = "443")]
    tls: Vec<u16>,
    /// TLS ports with http/1.1 alone.
    #[arg(long, value_delimiter = ',')]
    tls_http1: Vec<u16>,
    /// Plain HTTP ports.
    #[arg(long, value_delimiter = ',', default_value = "80")]
    plain: Vec<u16>,
    /// Port of the resolver.
    #[arg(long)]
    dns: Option<u16>,
    /// What the resolver answers to A queries.
    #[arg(long, default_value = "127.0.0.1")]
    answer: Ipv4Addr,
    /// Log file (JSON lines).
    #[arg(long)]
    log: PathBuf,
    /// Where to write the authority's certificate.
    #[arg(long)]
    ca_out: PathBuf,
    /// Seconds that access tokens of accounts are good.
    #[arg(long, default_value_t = 3600)]
    token_lifetime: u64,
    /// Directory of bare repositories.
    #[arg(long)]
    git_root: Option<PathBuf>,
    /// `NAME=ADDRESS:PORT`: TLS connections for that name are ended here and passed on to that server.
    #[arg(long, value_parser = relay)]
    relay: Option<(String, SocketAddr)>,
}

fn relay(text: &str) -> Result<(String, SocketAddr), String> {
    let (name, server) = text.split_once('=').ok_or("NAME=ADDRESS:PORT")?;
    Ok((name.to_owned(), server.parse().map_err(|error| format!("{server}: {error}"))?))
}

fn main() -> ExitCode {
    let Arguments {
        address,
        tls,
        tls_http1,
        plain,
        dns,
        answer,
        log,
        ca_out,
        token_lifetime,
        git_root,
        relay,
    } = Arguments::parse();
    let token_lifetime = std::time::Duration::from_secs(token_lifetime);
    let options =
        Options { address, tls, tls_http1, plain, dns, answer, log, ca_out, token_lifetime, git_root, relay };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("mock-provider: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(mock::run(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mock-provider: {error:#}");
            ExitCode::FAILURE
        }
    }
}
