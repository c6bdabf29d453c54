"""The status page of the demo, in a browser and by plain HTTP requests. Prints a line for each check; exits with 1 if one failed.

    check.py PROGRAM [--shots DIR]

What it relies on in the page:
    #round, #rounds, #stage, #waiting, #latest, #result, #check, #message, #banner, #events li
    #progress[data-stage], body[data-ready]
    #parties-body tr[data-party][data-name][data-state], with the cells: hospital, round, rounds noised, starts, epsilon, button
    button[data-action=kill|start][data-party]
"""

import argparse
import http.client
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1280,900",
]  # fmt: skip
STREAMS = 1000
HEADER = {"X-Undertone": "page"}


class Checks:
    """Counts what passed."""

    def __init__(self):
        self.passed = self.failed = 0

    def that(self, holds, what, detail=""):
        if holds:
            self.passed += 1
        else:
            self.failed += 1
        print(("ok      " if holds else "FAILED  ") + what + (f": {detail}" if detail and not holds else ""), flush=True)
        return bool(holds)

    def soon(self, question, what, seconds=30.0, detail=lambda: ""):
        """That the question is answered with yes within the time."""
        return self.that(wait(question, seconds), what, f"not within {seconds:.0f} s {detail()}")


def wait(question, seconds, pause=0.1):
    end = time.monotonic() + seconds
    while True:
        try:
            answer = question()
        except (StaleElementReferenceException, OSError, http.client.HTTPException):
            answer = None
        if answer or time.monotonic() > end:
            return answer
        time.sleep(pause)


class Demo:
    """The demo as a process, with its page."""

    def __init__(self, program, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        command = [program, "demo", "--page", f"127.0.0.1:{self.port}", "--out", str(folder / "demo")]
        self.output = []
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.output.append(line.rstrip())

    def answers(self):
        return self.request("GET", "/").status == 200

    def request(self, method, path, headers=None, seconds=10.0):
        """An answer, with its body already read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            answer.text = "" if answer.headers.get_content_type() == "text/event-stream" else answer.read().decode()
            return answer
        finally:
            connection.close()

    def state(self):
        """The first message of the stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/events")
            answer = connection.getresponse()
            for line in answer:
                if line.startswith(b"data:"):
                    return json.loads(line[5:])
            raise OSError("the stream ended without a message")
        finally:
            connection.close()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Page:
    """The page in a browser."""

    def __init__(self, profile):
        options = Options()
        for flag in [*FLAGS, f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.requests = []
        self.errors = []

    def collect(self):
        """The logs are emptied by reading, so what matters is kept here."""
        self.errors += [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.find(selector).text

    def round(self):
        return int(self.text("#round"))

    def rows(self):
        """The hospitals: what is in each row of the table."""
        script = """return [...document.querySelectorAll("#parties-body tr")].map(row => ({party: row.dataset.party, name: row.dataset.name, state: row.dataset.state,
            words: row.cells[0].textContent, round: Number(row.cells[1].textContent), starts: Number(row.cells[3].textContent)}))"""
        return self.driver.execute_script(script)

    def row(self, party):
        return next(row for row in self.rows() if row["party"] == party)

    def button(self, party):
        return self.find(f'#parties-body tr[data-party="{party}"] button')

    def events(self):
        return self.driver.execute_script('return [...document.querySelectorAll("#events li")].map(item => item.textContent)')

    def size(self, width, height, mobile=False):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if mobile else 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        time.sleep(0.5)

    def scheme(self, scheme):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        time.sleep(0.3)

    def overflow(self):
        return self.driver.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def background(self):
        return self.driver.execute_script("return getComputedStyle(document.body).backgroundColor")

    def shot(self, path):
        self.driver.execute_script("scrollTo(0, 0)")
        self.driver.save_screenshot(str(path))


def tab_to(page, party, most=60):
    """Presses Tab until the button of the hospital has the focus."""
    page.driver.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
    for _ in range(most):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        script = 'const at = document.activeElement; return [at.tagName, at.dataset.party ?? "", getComputedStyle(at).outlineStyle, parseFloat(getComputedStyle(at).outlineWidth)]'
        tag, at, style, width = page.driver.execute_script(script)
        if tag == "BUTTON" and at == party:
            return style != "none" and width >= 2
    return False


def kill_and_bring_back(checks, demo, page, shots):
    first = page.round()
    checks.soon(lambda: page.round() > first, "the round number moves")
    rows = page.rows()
    checks.that(len(rows) == 10, "ten hospitals are listed", len(rows))
    victim = next((row for row in rows if row["name"] == "glenwood"), rows[6] if len(rows) > 6 else rows[0])
    party, name = victim["party"], victim["name"]
    checks.soon(lambda: page.row(party)["state"] == "running", f"{name} runs")
    page.button(party).click()
    checks.soon(lambda: page.row(party)["state"] == "killed", f"{name} is shown as killed", 20, lambda: page.text("#message"))
    checks.soon(lambda: any(name in event and "killed" in event for event in page.events()), "an event says that it was killed", 10, lambda: str(page.events()[:3]))
    checks.soon(lambda: f"waits for {name}" in " ".join(row["words"] for row in page.rows()), "a neighbour is shown as waiting for it", 20)
    checks.soon(lambda: "wait" in page.text("#waiting"), "the progress says that hospitals wait", 20)
    checks.soon(lambda: stands_still(page), "the rounds of the others stand still", 30)
    checks.that(page.button(party).text == "Bring back", "its button says Bring back", page.button(party).text)

    shots_while_killed(checks, page, shots)
    focus_and_landmarks(checks, page, party)

    before = page.row(party)
    checks.that(before["state"] == "killed" and stands_still(page), "it is still killed, and the others still wait")
    page.button(party).send_keys(Keys.ENTER)
    checks.soon(lambda: page.row(party)["state"] in ("running", "finished"), f"{name} runs again", 30, lambda: page.text("#message"))
    checks.soon(lambda: "resumed at round" in page.row(party)["words"], "the round at which it resumed is shown", 20, lambda: page.row(party)["words"])
    checks.that(page.driver.execute_script("return document.activeElement.dataset.party") == party, "its button kept the focus")
    checks.soon(lambda: page.row(party)["round"] > before["round"], "its rounds move again")
    checks.that(page.row(party)["starts"] == 2, "it was started twice", page.row(party)["starts"])


def stands_still(page, seconds=1.5):
    before = [row["round"] for row in page.rows()]
    time.sleep(seconds)
    return before == [row["round"] for row in page.rows()]


def shots_while_killed(checks, page, shots):
    light = page.background()
    for width, height, mobile, name in [(1280, 900, False, "demo-desktop.png"), (390, 844, True, "demo-phone.png")]:
        page.size(width, height, mobile)
        page.shot(shots / name)
        checks.that(page.overflow() <= 0, f"nothing overflows at {width} pixels", page.overflow())
    page.size(360, 740, True)
    checks.that(page.overflow() <= 0, "nothing overflows at 360 pixels", page.overflow())
    page.size(1280, 900)
    page.scheme("dark")
    checks.that(page.background() != light, "the dark scheme has another background", light)
    page.shot(shots / "demo-dark.png")
    page.scheme("light")


def focus_and_landmarks(checks, page, party):
    for tag in ("header", "main", "footer", "h1"):
        checks.that(len(page.driver.find_elements(By.CSS_SELECTOR, tag)) == 1, f"there is one {tag}")
    for section in ("progress", "parties", "network", "learning", "budget", "model", "log"):
        script = 'const id = document.getElementById(arguments[0])?.getAttribute("aria-labelledby"); return id ? document.getElementById(id).textContent : ""'
        checks.that(page.driver.execute_script(script, section), f"the section {section} has a heading as its name")
    charts = page.driver.execute_script('return [...document.querySelectorAll("svg[role=img]")].map(svg => svg.getAttribute("aria-label") ?? "")')
    checks.that(len(charts) == 2 and all(len(words) > 20 for words in charts), "both charts are described in words", charts)
    checks.that(page.find("#spent-meter").get_attribute("role") == "meter", "the budget is a meter")
    checks.that(tab_to(page, party), "Tab reaches the button, and the focus can be seen")


def finish(checks, page):
    checks.soon(lambda: page.find("#progress").get_attribute("data-stage") == "finished", "the study is finished", 180, lambda: f"(round {page.text('#round')})")
    checks.soon(lambda: re.search(r"\b0 rounds noised twice|no round (was )?noised twice", page.text("#check"), re.I), "the check says that no round was noised twice", 20,
                lambda: page.text("#check"))
    checks.that(page.text("#result").startswith("\u2713"), "there is a result", page.text("#result"))
    checks.that(page.text("#round") == page.text("#rounds"), "all rounds are done", page.text("#round"))


def nothing_else(checks, demo, page):
    page.collect()
    strange = [url for url in page.requests if not url.startswith((demo.url, "data:"))]
    # A fresh browser opens its own empty page first.
    strange = [url for url in strange if not url.startswith(("about:", "chrome:"))]
    checks.that(page.requests and not strange, "the page requested nothing from elsewhere", strange)
    checks.that(not page.errors, "the browser reports no errors", page.errors)


def plain_requests(checks, demo):
    answer = demo.request("GET", "/")
    policy = answer.headers.get("Content-Security-Policy", "")
    nonce = re.search(r"script-src 'nonce-([^']+)'", policy)
    checks.that(nonce and "default-src 'none'" in policy, "the page has a policy with a nonce", policy)
    in_body = set(re.findall(r'nonce="([^"]*)"', answer.text))
    checks.that(nonce and in_body == {nonce[1]}, "the nonce of the body is that of the policy", in_body)
    again = demo.request("GET", "/").headers.get("Content-Security-Policy", "")
    checks.that(again != policy, "every answer has its own nonce")
    checks.that(answer.headers.get("X-Content-Type-Options") == "nosniff", "the type is not to be guessed")
    checks.that(answer.headers.get("Cache-Control") == "no-store", "the page is not to be stored")
    for path in ("/", "/events"):
        status = demo.request("GET", path, {"Host": "evil.example"}).status
        checks.that(status in (421, 403), f"GET {path} with a strange Host is refused", status)
    status = demo.request("POST", "/peers/6/kill").status
    checks.that(400 <= status < 500, "a POST without the header is refused", status)
    status = demo.request("POST", "/peers/6/kill", {**HEADER, "Host": "evil.example"}).status
    checks.that(status in (421, 403), "a POST with a strange Host is refused", status)
    checks.that(wait(demo.state, 20)["peers"][6]["state"] != "killed", "neither killed a hospital")
    for method, path, wanted in [("POST", "/", 405), ("GET", "/nothing-here", 404)]:
        status = demo.request(method, path, HEADER).status
        checks.that(status == wanted, f"{method} {path} is answered with {wanted}", status)
    for path in ("/peers/99/kill", "/peers/x/kill", "/peers/6/other"):
        status = demo.request("POST", path, HEADER).status
        checks.that(400 <= status < 500, f"POST {path} is refused", status)


def many_streams(checks, demo):
    """Streams that nobody reads, while the study runs."""
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most, min(hard, 2 * STREAMS + 200)), hard))
    request = f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{demo.port}\r\nAccept: text/event-stream\r\n\r\n".encode()
    before = wait(demo.state, 20)
    streams = []
    for _ in range(STREAMS):
        try:
            stream = socket.create_connection(("127.0.0.1", demo.port), timeout=5)
            stream.sendall(request)
            streams.append(stream)
        except OSError:
            break
    # Fewer than all is right too: the server may refuse connections over its cap.
    checks.that(len(streams) > 0, f"{len(streams)} of {STREAMS} idle streams were opened")
    start = time.monotonic()
    checks.soon(lambda: demo.request("GET", "/").status in (200, 503), "the server answers while they are open", 20, lambda: f"({time.monotonic() - start:.1f} s)")
    time.sleep(2)
    for stream in streams:
        stream.close()
    checks.soon(demo.answers, "the page is served after they are closed", 20)
    checks.soon(lambda: moved(before, demo.state()), "the study went on", 20)


def moved(before, after):
    return after["round"] > before["round"] or after["stage"] == "finished"


def closed_browser(checks, demo, folder):
    page = Page(folder / "profile-closed")
    page.driver.get(demo.url)
    shown = wait(lambda: page.find("body").get_attribute("data-ready"), 20)
    page.driver.quit()
    before = wait(demo.state, 20)
    checks.that(shown, "a second browser shows the page, and is closed")
    checks.soon(lambda: moved(before, demo.state()), "the study goes on after that", 20)


def lost_banner(checks, demo, page):
    demo.stop()
    checks.soon(lambda: "does not answer" in page.text("#banner"), "the page says when the demo does not answer", 20)
    checks.that(int(page.text("#round")) > 0, "the last state is still shown")


def main():
    parser = argparse.ArgumentParser(description="Checks the status page of the demo in a browser.")
    parser.add_argument("program", help="the program undertone")
    parser.add_argument("--shots", type=Path, help="a folder for screenshots")
    arguments = parser.parse_args()
    # Chromium would otherwise ask the network for names and proxies.
    for variable in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        os.environ.pop(variable, None)
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="undertone-browser-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        shots = arguments.shots or folder
        shots.mkdir(parents=True, exist_ok=True)
        demo = Demo(arguments.program, folder)
        page = None
        try:
            if checks.soon(demo.answers, "the demo serves its page", 60, lambda: "\n".join(demo.output[-5:])):
                checks.soon(lambda: any(demo.url in line for line in demo.output), "the demo prints the address", 10)
                page = Page(folder / "profile")
                page.size(1280, 900)
                page.scheme("light")
                page.driver.get(demo.url)
                checks.soon(lambda: page.find("body").get_attribute("data-ready"), "the page shows the state")
                checks.soon(lambda: page.round() > 0, "the rounds begin", 60)
                kill_and_bring_back(checks, demo, page, shots)
                plain_requests(checks, demo)
                many_streams(checks, demo)
                closed_browser(checks, demo, folder)
                finish(checks, page)
                nothing_else(checks, demo, page)
                lost_banner(checks, demo, page)
        except (WebDriverException, OSError, KeyError, IndexError, TypeError, ValueError, StopIteration, http.client.HTTPException) as error:
            checks.that(False, "the checks ran to their end", repr(error))
        finally:
            if page:
                page.driver.quit()
            demo.stop()
        if checks.failed:
            print("\nThe last lines of the demo:\n" + "\n".join(demo.output[-20:]))
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
