"""A headless Chromium on the DevTools protocol, over a pipe (--remote-debugging-pipe): no driver, no ports, the
standard library alone. https://chromedevtools.github.io/devtools-protocol/"""

import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
TIMEOUT_S = 60


def find():
    """The program, or None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One browser with one page. Errors of the console, of scripts and of loading gather in `errors`."""

    def __init__(self, program=None):
        program = program or find()
        self.folder = tempfile.mkdtemp(prefix="normlab-browser-")
        self.errors, self.buffer, self.number, self.session = [], b"", 0, None
        high = lambda descriptor: fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)  # clear of 3 and 4
        pipes = [os.pipe(), os.pipe()]
        (read_here, write_there), (read_there, write_here) = [[high(end) for end in pipe] for pipe in pipes]
        for pipe in pipes:
            for end in pipe:
                os.close(end)
        null = os.open(os.devnull, os.O_RDWR)
        quiet = high(null)
        os.close(null)
        arguments = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--force-color-profile=srgb", "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank"]
        actions = [(os.POSIX_SPAWN_DUP2, read_there, 3), (os.POSIX_SPAWN_DUP2, write_there, 4),
                   (os.POSIX_SPAWN_DUP2, quiet, 1), (os.POSIX_SPAWN_DUP2, quiet, 2)]
        self.process = os.posix_spawn(program, arguments, os.environ, file_actions=actions, setsid=True)
        for descriptor in (read_there, write_there, quiet):
            os.close(descriptor)
        self.read_from, self.write_to = read_here, write_here
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        try:
            os.killpg(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        except OSError:
            pass
        for descriptor in (self.read_from, self.write_to):
            os.close(descriptor)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_to, data):]
        number = self.number
        return self._until(lambda answer: answer.get("id") == number)

    def wait_for(self, event):
        self._until(lambda message: message.get("method") == event)

    def _until(self, wanted):
        end = time.monotonic() + TIMEOUT_S
        while True:
            while b"\0" not in self.buffer:
                if not select.select([self.read_from], [], [], max(0, end - time.monotonic()))[0]:
                    raise TimeoutError("the browser does not answer")
                more = os.read(self.read_from, 1 << 20)
                if not more:
                    raise RuntimeError("the browser ended")
                self.buffer += more
            line, _, self.buffer = self.buffer.partition(b"\0")
            message = json.loads(line)
            self._note(message)
            if wanted(message):
                if "error" in message:
                    raise RuntimeError(message["error"])
                return message.get("result", {})

    def _note(self, message):
        params, method = message.get("params", {}), message.get("method")
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(one.get("value")) for one in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def open(self, path, width=1600, height=1000, dark=False):
        """Loads a file in a window of this size and waits until it is drawn."""
        self.resize(width, height, dark)
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        self.wait_for("Page.loadEventFired")
        self.settle()

    def resize(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def settle(self):
        """Two frames: layout and charts have caught up."""
        self.run("new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 200))")

    def run(self, expression):
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"Tab": 9}.get(key, 0))

    def screenshot(self, width, height, left=0, top=0):
        """PNG bytes of a part of the page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                           clip={"x": left, "y": top, "width": width, "height": height, "scale": 1})
        return base64.b64decode(answer["data"])

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])
