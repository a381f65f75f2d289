"""A headless Chromium, controlled over its debugging pipe (Chrome DevTools Protocol)."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from tiny_runs import HANG

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def program():
    """The first browser that is installed, or None."""
    return next((found for found in map(shutil.which, PROGRAMS) if found), None)


needed = pytest.mark.skipif(program() is None,
                            reason="no Chromium here: apt-get install chromium-headless-shell (or chromium)")


class Browser:
    """One page. events: messages of the browser; errors(): errors of the page, and requests to other places."""

    def __init__(self, width=1400, height=1000):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def hand_over():  # the browser reads commands from descriptor 3 and answers on 4
            commands, answers = os.dup(to_browser), os.dup(from_browser)
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        words = [program(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--remote-debugging-pipe",
                 "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
                 f"--user-data-dir={self.folder.name}",
                 f"--window-size={width},{height}", "about:blank"]
        self.process = subprocess.Popen(words, preexec_fn=hand_over, close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.buffer, self.events, self.session = 0, b"", [], None
        target = self.send("Target.createTarget", url="about:blank", width=width, height=height)["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        self.folder.cleanup()

    def _read(self, timeout):
        while b"\0" not in self.buffer:
            if not select.select([self.read_end], [], [], timeout)[0]:
                raise TimeoutError("the browser doesn't answer")
            chunk = os.read(self.read_end, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def send(self, method, timeout=HANG, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method,
                   "params": parameters} | ({"sessionId": self.session} if self.session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        while True:
            answer = self._read(timeout)
            if answer.get("id") != self.number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def evaluate(self, expression):
        """The expression's value. A page that loads itself again just then is asked again."""
        try:
            answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        except RuntimeError as error:
            if "Inspected target navigated" not in str(error):
                raise
            return self.evaluate(expression)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def open(self, path, timeout=HANG):
        """Until the page says that it is drawn, or that it could not be."""
        state = self.go(Path(path).resolve().as_uri(), "document.body && document.body.dataset.state", timeout)
        time.sleep(0.3)
        self.evaluate("1")
        return state

    def go(self, url, ready, timeout=HANG):
        """What the expression `ready` gives there once it gives something."""
        self.send("Page.navigate", url=url)
        end = time.monotonic() + timeout
        while not (found := self.evaluate(ready)):
            if time.monotonic() > end:
                raise TimeoutError(f"{url} is not ready after {timeout} s; {self.errors()}")
            time.sleep(0.1)
        return found

    def errors(self):
        errors = []
        for event in self.events:
            what, details = event.get("method"), event.get("params", {})
            if what == "Runtime.exceptionThrown":
                errors.append(details["exceptionDetails"].get("exception", {}).get("description")
                              or details["exceptionDetails"]["text"])
            elif what == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
                errors.append(f"console {details['type']}: "
                              f"{[item.get('value', item.get('description')) for item in details['args']]}")
            elif what == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
                errors.append(f"log: {details['entry']['text']}")
            elif what == "Network.requestWillBeSent" and not details["request"]["url"].startswith(("file:",
                                                                                                   "data:", "about:")):
                errors.append(f"request of {details['request']['url']}")
        return errors

    def requests(self):
        """Files that were requested, including the page itself."""
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"
                and event["params"]["request"]["url"].startswith("file:")]

    def mouse(self, kind, x, y, **more):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path, whole=True):
        """The whole page as a PNG."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = ({"clip": {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1}}
                if whole else {})
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)["data"]
        Path(path).write_bytes(base64.b64decode(data))
