//! Clients of SSH and PostgreSQL for which there is no door, or which are one too many: told so in their own words.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::world::{HOST, Options, TO_HOST, TO_LITERAL, TO_SINK, World};

const TLS: [u8; 8] = [0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f];
const START: &[u8] = b"\0\0\0\x12\0\x03\0\0user\0app\0\0";
const VERSION: &[u8] = b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n";

/// Where clients on this machine arrive that want to go to `port` of the host.
async fn way(world: &World, port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let way = listener.local_addr().unwrap().port();
    let (stated, sidecar) = (world.stated(), world.listener);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut inner = stated.connect(sidecar, SocketAddr::new(TO_HOST.into(), port)).await;
            tokio::spawn(async move { drop(tokio::io::copy_bidirectional(&mut client, &mut inner).await) });
        }
    });
    way
}

/// What a program complains of.
async fn complaint(mut command: Command) -> String {
    command.env("LC_ALL", "C").env("HOME", "/nonexistent").stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs OpenSSH (package openssh-client); make test-all"]
async fn ssh_shows_why_there_is_no_way() {
    let world = World::new().await;
    let port = way(&world, 22).await;
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "none", "-o", "BatchMode=yes", "-p", &port.to_string(), "git@127.0.0.1", "true"]);
    let told = complaint(ssh).await;
    assert!(told.contains("Received disconnect from 127.0.0.1"), "{told}");
    for part in ["understudy: protocol-not-allowed", "tcp = true", "kind `ssh-key`"] {
        assert!(told.contains(part), "{told}");
    }
    let line = world.only_line().await;
    assert_eq!((&line["reason"], &line["host"]), (&"protocol-not-allowed".into(), &HOST.into()));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs psql (package postgresql-client); make test-all"]
async fn psql_shows_why_there_is_no_way() {
    let world = World::new().await;
    let port = way(&world, 5432).await;
    for mode in ["disable", "prefer", "require"] {
        let mut psql = Command::new("psql");
        psql.arg(format!("host=127.0.0.1 port={port} user=app dbname=app sslmode={mode}"));
        let told = complaint(psql).await;
        assert!(told.contains("FATAL:  understudy: protocol-not-allowed"), "{mode}: {told}");
        assert!(told.contains("kind `postgres`"), "{told}");
    }
    assert_eq!(world.upstream.connections(), 0);
}

/// What is said to the end, after these bytes, and how each is answered before the last.
async fn said(world: &World, to: ([u8; 4], u16), steps: &[(&[u8], &[u8])], last: &[u8]) -> Vec<u8> {
    let mut client = world.connect_at(world.listener, SocketAddr::new(to.0.into(), to.1)).await;
    for (bytes, answer) in steps {
        client.write_all(bytes).await.unwrap();
        let mut heard = vec![0; answer.len()];
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, *answer);
    }
    client.write_all(last).await.unwrap();
    let mut heard = Vec::new();
    // An end, not a reset.
    client.read_to_end(&mut heard).await.unwrap();
    heard
}

fn holds(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}

#[tokio::test]
async fn whatever_the_address_they_are_told_with_a_code() {
    let world = World::new().await;
    for (to, why) in [(TO_SINK, "no rule allows"), (TO_LITERAL, "no name was looked up")] {
        for (steps, last) in [
            (&[][..], START),
            (&[(&TLS[..], &b"N"[..])], START),
            (&[(&[0, 0, 0, 8, 4, 0xd2, 0x16, 0x30][..], &b"N"[..]), (&TLS, b"N")], START),
        ] {
            let heard = said(&world, (to, 5432), steps, last).await;
            assert!(heard.starts_with(b"E") && holds(&heard, "\0C28000\0"), "{}", heard.escape_ascii());
            assert!(holds(&heard, why), "{}", heard.escape_ascii());
        }
        let heard = said(&world, (to, 22), &[], VERSION).await;
        assert!(heard.starts_with(b"SSH-2.0-understudy\r\n"), "{}", heard.escape_ascii());
        assert!(holds(&heard, why), "{}", heard.escape_ascii());
    }
}

#[tokio::test]
async fn one_too_many_is_told_so() {
    let mut options = Options::default();
    options.limits.connections = 1;
    let world = World::with(options).await;
    let _held = world.connect(TO_HOST).await;
    let heard = said(&world, (TO_HOST, 5432), &[(&TLS, b"N")], START).await;
    assert!(holds(&heard, "\0C53300\0") && holds(&heard, "overloaded"), "{}", heard.escape_ascii());
    let heard = said(&world, (TO_HOST, 22), &[], VERSION).await;
    let (_, packet) = heard.split_at(b"SSH-2.0-understudy\r\n".len());
    // SSH_DISCONNECT_TOO_MANY_CONNECTIONS
    assert_eq!(packet[5..10], [1, 0, 0, 0, 12]);
    // Those that say nothing end soon.
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(world.connect(TO_HOST).await);
    }
    for client in &mut silent {
        assert!(!matches!(client.read(&mut [0]).await, Ok(1..)));
    }
    assert_eq!(world.audit(22).await[21]["reason"], "overloaded");
}

/// What is read and answered there has an end, too.
#[tokio::test]
async fn far_too_many_are_reset_at_once() {
    let mut options = Options::default();
    options.limits.connections = 1;
    let world = World::with(options).await;
    let held: Vec<_> = (0..200).map(|_| world.container.open_connection()).collect();
    let mut heard = Vec::new();
    let destination = SocketAddr::new(TO_HOST.into(), 22);
    if let Ok(mut client) = world.stated().try_connect(world.listener, destination).await {
        drop(client.write_all(VERSION).await);
        assert!(client.read_to_end(&mut heard).await.is_err());
    }
    assert!(heard.is_empty(), "{}", heard.escape_ascii());
    assert_eq!(world.only_line().await["reason"], "overloaded");
    drop(held);
}
