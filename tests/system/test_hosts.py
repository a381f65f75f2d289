"""Two hosts that are network namespaces of this machine, with a slow link between them. Only root can make them."""

import contextlib
import json
import os
import shutil
import subprocess

import pytest
import tiny_runs as tiny

RATE = 12.5e6  # bytes a second of the link: 100 Mbit/s, so that its time is far above what processors take
NETWORK = "10.86.0"


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def limit(namespace, device):
    subprocess.run(["tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{RATE:.0f}bps",
                    "burst", "64kb", "latency", "100ms"], check=True, capture_output=True)


@pytest.fixture
def namespaces():
    """Names of two namespaces that a link of RATE joins: N.1 and N.2 are their addresses in the NETWORK."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("network namespaces need root, ip and tc")
    names = [f"switchyard-{os.getpid()}-{side}" for side in "ab"]
    with contextlib.ExitStack() as undo:
        try:
            for name in names:
                ip("netns", "add", name)
                undo.callback(ip, "netns", "del", name)
            devices = [f"sy{os.getpid() % 100000}{side}" for side in "ab"]
            ip("link", "add", devices[0], "netns", names[0], "type", "veth", "peer", "name", devices[1], "netns",
               names[1])
            for number, (name, device) in enumerate(zip(names, devices), 1):
                ip("-n", name, "address", "add", f"{NETWORK}.{number}/24", "dev", device)
                ip("-n", name, "link", "set", device, "up")
                ip("-n", name, "link", "set", "lo", "up")
                limit(name, device)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine makes no network namespaces: {error.stderr.decode().strip()}")
        yield names


def test_a_profile_over_tcp_has_the_rate_of_the_link_and_not_that_of_socket_buffers(namespaces, tmp_path):
    command = [tiny.PROGRAM, "profile", "--quick", "--threads", "1", "--out", str(tmp_path / "p.json")]
    started = tiny.start_ranks([["ip", "netns", "exec", name, *command] for name in namespaces], hosts=["a", "b"],
                               variables=[{"LOCAL_RANK": "0", "MASTER_ADDR": f"{NETWORK}.1"}] * 2)
    said = [process.communicate(timeout=tiny.HANG) for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    profile = json.loads((tmp_path / "p.json").read_text())
    assert profile["hosts"] == 2 and profile["machine"]["fabric"] == "tcp"
    # No machine is too fast for it; a busy one may be too slow.
    assert 0.5 * RATE < profile["links"]["inter_host"]["bandwidth"] < 1.05 * RATE
