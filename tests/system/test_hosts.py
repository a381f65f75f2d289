"""Two hosts that are network namespaces of this machine, with a slow link between them. Only root can make them."""

import contextlib
import json
import shutil
import subprocess

import pytest
import tiny_runs as tiny

# Bytes a second of the link, each way: 80 Mbit/s. Its time is far above what processors take, and 1 MiB takes just over
# the tenth of a second at which a profile stops measuring larger messages.
RATE = 10e6
NETWORK = "10.86.0"
TOOLS = ("unshare", "nsenter", "ip", "tc")


def inside(namespace, *words):
    return ["nsenter", f"--net=/proc/{namespace.pid}/ns/net", *words]


def new_namespace():
    """A process in a network namespace of its own. It ends when its input is closed, at the latest when the test's
    process ends in whatever way, and the namespace ends with the last of its processes."""
    namespace = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo made; cat"], text=True, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if namespace.stdout.readline() != "made\n":  # before that, it would be the namespace of the machine
        pytest.skip(f"no network namespaces: {namespace.communicate()[1].strip()}")
    return namespace


def set_up(namespace, *words):
    done = subprocess.run(inside(namespace, *words), capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no limited links between network namespaces: {' '.join(words)}: {done.stderr.strip()}")


@pytest.fixture
def namespaces():
    """Two namespaces that a link of RATE joins: N.1 and N.2 are their addresses in the NETWORK."""
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    with contextlib.ExitStack() as ending:
        both = [ending.enter_context(new_namespace()) for _ in range(2)]
        set_up(both[0], "ip", "link", "add", "name", "eth0", "type", "veth",
               "peer", "name", "eth0", "netns", str(both[1].pid))
        for number, namespace in enumerate(both, 1):
            set_up(namespace, "ip", "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                set_up(namespace, "ip", "link", "set", device, "up")
            set_up(namespace, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{RATE:.0f}bps",
                   "burst", "64kb", "latency", "100ms")
        yield both


def test_a_profile_over_tcp_has_the_rate_of_the_link_and_not_that_of_socket_buffers(namespaces, tmp_path):
    command = [tiny.PROGRAM, "profile", "--quick", "--threads", "1", "--out", str(tmp_path / "p.json")]
    ranks = tiny.start_ranks([inside(namespace, *command) for namespace in namespaces], hosts=["a", "b"],
                             variables=[{"LOCAL_RANK": "0", "MASTER_ADDR": f"{NETWORK}.1"}] * 2)
    said = tiny.end_cleanly(ranks)
    profile = json.loads((tmp_path / "p.json").read_text())
    assert (profile["hosts"], profile["devices_per_host"], profile["machine"]["fabric"]) == (2, 1, "tcp")
    # No machine is too fast for it; a busy one may be too slow.
    assert 0.5 * RATE < profile["links"]["inter_host"]["bandwidth"] < 1.15 * RATE
    assert profile["links"]["intra_host"]["bandwidth"] > 100 * RATE, "one rank a host sends nothing inside it"
    assert "between hosts: " in said[0] and "within a host" not in said[0], "nor is it told that something was measured"


def test_rank_0_is_found_at_one_of_several_addresses_of_its_name(namespaces, tmp_path, corpus):
    """Its own host knows itself by a loopback address, too, and the other one by an address that nobody has."""
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(48, "1,2,1")], run={"ranks": 2, "steps": 2})
    commands = []
    for number, others in enumerate(("127.0.1.1", f"{NETWORK}.77")):
        hosts = tmp_path / f"hosts-{number}"
        hosts.write_text(f"{others} first\n{NETWORK}.1 first\n")
        conf = tmp_path / "host.conf"
        conf.write_text("multi on\n")
        commands.append(inside(namespaces[number], "unshare", "--mount", "sh", "-c",
                               f'mount --bind {hosts} /etc/hosts && mount --bind {conf} /etc/host.conf && exec "$@"',
                               "sh", *tiny.command(job, "--out", tmp_path / "out")))
    tiny.end_cleanly(tiny.start_ranks(commands, hosts=["a", "b"], variables=[{"MASTER_ADDR": "first"}] * 2))
    assert len(tiny.read_log(tmp_path / "out")) == 2
