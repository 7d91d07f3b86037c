//! The AWS CLI and boto3, unmodified, against a server that speaks S3 and verifies what is signed: both with a stand-in, the
//! server with the real key. `integration-tests/images/s3` fetches them.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::upstream::Protocols;
use crate::world::{HOST, Options, TO_HOST, World};

const REAL_ID: &str = "AKIAREALREALREAL2345";
const REAL_SECRET: &str = "rEaL/secret+access/key0123456789abcdefgh";
const VALUE: &str = "[default]\naws_access_key_id = AKIAREALREALREAL2345\naws_secret_access_key = rEaL/secret+access/key0123456789abcdefgh\n";
/// Where the clients find the host: they look it up by themselves, and nobody looks up for them here.
const LOOKED_UP: [u8; 4] = [127, 0, 0, 2];
const LOOKUP: &str = "import socket\nown = socket.getaddrinfo\n\
                      def look(host, *rest, **more):\n    return own('127.0.0.2' if host in ('HOST', b'HOST') else host, *rest, **more)\n\
                      socket.getaddrinfo = look\n";

const BOTO3: &str = r#"
import hashlib, sys, urllib.request
import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

endpoint = sys.argv[1]

def client(service="s3", **more):
    return boto3.client(service, endpoint_url=endpoint, region_name="us-east-1", **more)

def refusal(call, **more):
    try:
        call(**more)
    except ClientError as error:
        return error.response["Error"]
    raise SystemExit("it was not refused")

s3 = client()
s3.create_bucket(Bucket="mine")
key = "a dir/\u00e9 (1)~'*.txt"
s3.put_object(Bucket="mine", Key=key, Body=b"hello", Metadata={"words": "several  words"})
got = s3.get_object(Bucket="mine", Key=key)
assert got["Body"].read() == b"hello" and got["Metadata"]["words"].split() == ["several", "words"], got
assert s3.get_object(Bucket="mine", Key=key, Range="bytes=1-2")["Body"].read() == b"el"
listed = s3.list_objects_v2(Bucket="mine", Prefix="a dir/", Delimiter="/")
assert [found["Key"] for found in listed["Contents"]] == [key], listed
s3.copy_object(Bucket="mine", Key="copy", CopySource={"Bucket": "mine", "Key": key})
assert s3.head_object(Bucket="mine", Key="copy")["ContentLength"] == 5

data = bytes(range(256)) * 4096 * 100
with open(sys.argv[2], "wb") as file:
    file.write(data)
parts = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20, max_concurrency=4)
s3.upload_file(sys.argv[2], "mine", "big", Config=parts)
s3.download_file("mine", "big", sys.argv[2] + ".back", Config=parts)
with open(sys.argv[2] + ".back", "rb") as file:
    assert hashlib.sha256(file.read()).digest() == hashlib.sha256(data).digest()

signed = client(config=Config(s3={"payload_signing_enabled": True, "addressing_style": "path"}, request_checksum_calculation="when_required"))
signed.put_object(Bucket="mine", Key="signed", Body=b"payload")
v4 = client(config=Config(signature_version="s3v4"))
url = v4.generate_presigned_url("get_object", Params={"Bucket": "mine", "Key": key}, ExpiresIn=60)
assert urllib.request.urlopen(url).read() == b"hello"
url = v4.generate_presigned_url("put_object", Params={"Bucket": "mine", "Key": "put"}, ExpiresIn=60)
assert urllib.request.urlopen(urllib.request.Request(url, data=b"by url", method="PUT")).status == 200
assert s3.get_object(Bucket="mine", Key="put")["Body"].read() == b"by url"

error = refusal(client(aws_secret_access_key="x" * 40, aws_access_key_id=sys.argv[3]).list_objects_v2, Bucket="mine")
assert error["Code"] == "SignatureDoesNotMatch" and "reason: not-signed" in error["Message"], error
error = refusal(client(aws_access_key_id="AKIAZZZZZZZZZZZZ2345", aws_secret_access_key="x" * 40).list_objects_v2, Bucket="mine")
assert error["Code"] == "AccessDenied" and "foreign-credential" in error["Message"], error
error = refusal(s3.list_objects_v2, Bucket="others")
assert error["Code"] == "AccessDenied" and "`buckets`" in error["Message"], error
error = refusal(client("sqs").list_queues)
assert "`services`" in error["Message"], error
error = refusal(client("ec2").describe_instances)
assert error["Code"] == "AccessDenied" and "`services`" in error["Message"], error
error = refusal(client("sts").get_caller_identity)
assert "credential-minting" in error["Message"], error
error = refusal(client("dynamodb").list_tables)
assert "`services`" in error["Message"], error
print("all done")
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs integration-tests/images/s3; make test-all"]
async fn the_aws_cli_and_boto3_work_with_a_stand_in_and_read_what_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path()).await;
    let provider = "kind = \"aws\"\nservices = [\"s3\", \"sts\"]\nbuckets = \"mine\"";
    let world = World::with(Options {
        protocols: Protocols::Relay(store.1),
        provider,
        value: VALUE,
        rules: "[[allow]]\nhost = \"api.example.com\"\nport = PORT\n",
        ..Options::default()
    })
    .await;
    tokio::spawn(listen(world.upstream.port(), world.listener, world.stated()));
    std::fs::write(directory.path().join("ca.pem"), &world.authority_pem).unwrap();
    std::fs::write(directory.path().join("sitecustomize.py"), LOOKUP.replace("HOST", HOST)).unwrap();
    std::fs::write(directory.path().join("boto3.test.py"), BOTO3).unwrap();
    std::fs::create_dir(directory.path().join(".aws")).unwrap();
    std::fs::write(directory.path().join(".aws/config"), "[default]\ns3 =\n    addressing_style = path\n")
        .unwrap();
    let endpoint = format!("https://{HOST}:{}", world.upstream.port());
    let vault = world.vault.current();
    let secret = vault.secret("provider").unwrap();
    let id = secret.aws_key().unwrap().stand_in_id();
    let client = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().current_dir(directory.path()).stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", directory.path());
        command.env("PYTHONPATH", directory.path()).env("AWS_REGION", "us-east-1");
        for name in ["AWS_CA_BUNDLE", "SSL_CERT_FILE"] {
            command.env(name, directory.path().join("ca.pem"));
        }
        command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret.stand_in());
        command
    };

    let script = directory.path().join("boto3.test.py");
    let big = directory.path().join("big");
    let arguments = [script.to_str().unwrap(), &endpoint, big.to_str().unwrap(), id];
    let said = run(client("aws-python", &arguments)).await;
    assert!(said.ends_with("all done\n"), "{said}");

    let aws = |arguments: &str| {
        let arguments: Vec<&str> =
            ["--endpoint-url", &endpoint].into_iter().chain(arguments.split(' ')).collect();
        client("aws", &arguments)
    };
    assert!(run(aws("s3 cp big s3://mine/by/cli")).await.contains("upload: "));
    run(aws("s3 cp s3://mine/by/cli back")).await;
    assert!(std::fs::read(&big).unwrap() == std::fs::read(directory.path().join("back")).unwrap());
    assert!(run(aws("s3 ls s3://mine/by/")).await.contains(" cli"));
    let url = run(aws("s3 presign s3://mine/by/cli")).await;
    assert!(url.contains(id) && !url.contains(REAL_ID), "{url}");
    let refused = output(aws("s3 ls s3://others")).await;
    let told = text(&refused);
    assert!(
        !refused.status.success() && told.contains("understudy: ") && told.contains("`buckets`"),
        "{told}"
    );
    // What the server alone refuses is told, too, without the real id.
    let missing = text(&output(aws("s3api get-object --bucket mine --key nothing /dev/null")).await);
    assert!(missing.contains("NoSuchKey") && !missing.contains(REAL_ID), "{missing}");
    let audit = world.audit_text();
    assert!(!audit.contains(REAL_ID) && !audit.contains(REAL_SECRET), "{audit}");
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server, with the real key; and its address.
async fn store(directory: &Path) -> (Server, SocketAddr) {
    let root = directory.join("store");
    std::fs::create_dir(&root).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = Command::new("s3s-fs")
        .args(["--host", "127.0.0.1", "--port", &free.port().to_string()])
        .args(["--access-key", REAL_ID, "--secret-key", REAL_SECRET])
        .arg(&root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("integration-tests/images/s3 fetches s3s-fs");
    let server = Server(server);
    for _ in 0..500 {
        if TcpStream::connect(free).await.is_ok() {
            return (server, free);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("s3s-fs does not listen");
}

/// Hands what comes in to the sidecar, as redirecting would.
async fn listen(port: u16, sidecar: SocketAddr, stated: std::sync::Arc<crate::world::Stated>) {
    let listener = TcpListener::bind(SocketAddr::from((LOOKED_UP, port))).await.unwrap();
    while let Ok((mut client, _)) = listener.accept().await {
        let stated = std::sync::Arc::clone(&stated);
        tokio::spawn(async move {
            let mut redirected = stated.connect(sidecar, SocketAddr::new(TO_HOST.into(), port)).await;
            let _ = tokio::io::copy_bidirectional(&mut client, &mut redirected).await;
        });
    }
}

async fn run(command: Command) -> String {
    let done = output(command).await;
    assert!(done.status.success(), "{}", text(&done));
    text(&done)
}

async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}
