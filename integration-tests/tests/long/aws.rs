//! Keys of AWS: the AWS CLI and boto3 in a sealed container, with what that was given, and in the world a store that speaks S3
//! and verifies what is signed (`images/s3 image`).

use std::time::Duration;

use understudy_integration_tests::podman::{Container, unique, until, until_within};
use understudy_integration_tests::stand::{Agent, import};

use crate::stand;

const IMAGE: &str = "localhost/understudy-s3";
const ID: &str = "AKIAREALREALREAL8888";
const KEY: &str = "rEaL/secret+access/key1357924680abcdefgh";

const DECLARED: &str = "kind = \"aws\"\nfile = \"/etc/understudy/store\"\nhosts = \"store.example\"\nservices = [\"s3\", \"sts\"]\n\
                        buckets = [\"mine\"]\ngrant-to = { harnesses = [\"generic\"] }\n";
const POLICY: &str = "[[allow]]\nhost = \"store.example\"\n";

const BOTO3: &str = r#"
import hashlib, urllib.request
import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

def client(service="s3", **more):
    return boto3.client(service, endpoint_url="https://store.example", **more)

def refused(call, said, **more):
    try:
        call(**more)
    except ClientError as error:
        message = error.response["Error"]["Message"]
        assert "understudy: " in message and said in message, message
    else:
        raise SystemExit(f"{said}: it was not refused")

s3 = client()
s3.create_bucket(Bucket="mine")
s3.put_object(Bucket="mine", Key="a b", Body=b"hello")
assert s3.get_object(Bucket="mine", Key="a b")["Body"].read() == b"hello"
assert [found["Key"] for found in s3.list_objects_v2(Bucket="mine")["Contents"]] == ["a b"]
s3.copy_object(Bucket="mine", Key="copy", CopySource={"Bucket": "mine", "Key": "a b"})

data = bytes(range(256)) * 4096 * 24
with open("/tmp/big", "wb") as file:
    file.write(data)
parts = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20, max_concurrency=4)
s3.upload_file("/tmp/big", "mine", "big", Config=parts)
s3.download_file("mine", "big", "/tmp/back", Config=parts)
with open("/tmp/back", "rb") as file:
    assert hashlib.sha256(file.read()).digest() == hashlib.sha256(data).digest()

v4 = client(config=Config(signature_version="s3v4"))
url = v4.generate_presigned_url("get_object", Params={"Bucket": "mine", "Key": "a b"}, ExpiresIn=60)
assert urllib.request.urlopen(url).read() == b"hello"
url = v4.generate_presigned_url("put_object", Params={"Bucket": "mine", "Key": "put"}, ExpiresIn=60)
assert urllib.request.urlopen(urllib.request.Request(url, data=b"by url", method="PUT")).status == 200
assert s3.get_object(Bucket="mine", Key="put")["Body"].read() == b"by url"

refused(s3.list_objects_v2, "`buckets`", Bucket="others")
refused(s3.copy_object, "`buckets`", Bucket="mine", Key="x", CopySource={"Bucket": "others", "Key": "a"})
refused(client("sts").get_caller_identity, "credential-minting")
refused(client("dynamodb").list_tables, "`services`")
print("boto3 done")
"#;

const CLI: &str = r#"
aws="aws --endpoint-url https://store.example"
$aws s3 cp --quiet /tmp/big s3://mine/by/cli
$aws s3 cp --quiet s3://mine/by/cli /tmp/by-cli
cmp /tmp/big /tmp/by-cli
$aws s3 ls s3://mine/by/ | grep -q ' cli$'
curl -sS --fail "$($aws s3 presign s3://mine/by/cli)" | cmp - /tmp/big
! $aws s3 ls s3://others 2>/tmp/refused
grep -q 'understudy: .*`buckets`' /tmp/refused
echo cli done
"#;

/// With the real key, in the world, behind its TLS.
fn store() -> Container {
    let tar = stand().paths.cache.join("s3.tar");
    assert!(tar.exists(), "{} is missing: run integration-tests/images/s3 image", tar.display());
    import(&tar, IMAGE).unwrap();
    let script = format!(
        "mkdir /srv/store && echo ready && exec s3s-fs --host 127.0.0.1 --port 9000 --access-key {ID} --secret-key {KEY} /srv/store"
    );
    let network = stand().world_network();
    let store = Container::start(&unique("store"), [&network, IMAGE, "sh", "-c", &script]).unwrap();
    until("the store", || {
        Ok(store.exec(&["curl", "-s", "-o", "/dev/null", "http://127.0.0.1:9000"])?.code == Some(0))
    })
    .unwrap();
    store
}

#[test]
fn the_aws_cli_and_boto3_work_and_the_key_is_nowhere_in_their_container() {
    let stand = stand();
    let _store = store();
    let directory = &stand.paths.configuration;
    let value = format!("[default]\naws_access_key_id = {ID}\naws_secret_access_key = {KEY}\n");
    std::fs::write(directory.join("store"), value).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(directory.join("store"), mode).unwrap();
    std::fs::write(directory.join("policies/store.toml"), POLICY).unwrap();
    let _declared = stand.declare_meanwhile("store", DECLARED).unwrap();

    let script = format!(
        "{{ set -eu; export AWS_DEFAULT_REGION=us-east-1; printf '[default]\\ns3 =\\n    addressing_style = path\\n    signature_version = s3v4\\n' >~/.aws/config\n\
         cat >/tmp/boto3.test.py <<'END'\n{BOTO3}END\n\
         aws-python /tmp/boto3.test.py\n{CLI}\n}} >/tmp/said 2>&1; touch /tmp/done; exec sleep infinity"
    );
    // What fails must not end the container.
    let script = format!("({}", script.replacen("; touch", "); touch", 1));
    let agent = Agent::new("generic").image(IMAGE).annotation("understudy.policy", "store");
    let container = agent.annotation("understudy.secrets", "store").start(&["bash", "-c", &script]).unwrap();
    until_within(Duration::from_secs(300), "the clients", || {
        Ok(container.exec(&["test", "-e", "/tmp/done"])?.code == Some(0))
    })
    .unwrap();
    let said = container.exec(&["cat", "/tmp/said"]).unwrap().text();
    assert!(said.contains("boto3 done") && said.ends_with("cli done\n"), "{said}");
    assert!(!said.contains(ID), "{said}");

    // What it was given is found there, so the search would find the rest.
    let placed = container.exec(&["cat", "/root/.aws/credentials"]).unwrap().success().unwrap();
    let stand_ins: Vec<&str> = placed.lines().filter_map(|line| Some(line.split_once(" = ")?.1)).collect();
    assert_eq!(stand_ins.len(), 2);
    assert!(stand.hunt(&container, &stand_ins).unwrap().iter().any(|place| place.contains("environ")));
    assert_eq!(stand.hunt(&container, &[ID, KEY]).unwrap(), Vec::<String>::new());
}
