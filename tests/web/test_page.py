# SPDX-License-Identifier: BSD-2-Clause
"""The live page in a real browser: what it shows, by keyboard, on small screens and in the dark."""

from __future__ import annotations

import http.client
import json
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.watched_backend import event

from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.live.observe.feed import look_document
from mltcp_tools.live.observe.page import Page
from mltcp_tools.live.observe.view import Views

selenium = pytest.importorskip("selenium", reason="Selenium isn't installed (scripts/test web)")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="Chromium isn't installed (scripts/test web)",
)

PERIOD_S = 0.5


class Jobs:
    """Jobs of a host, each with some flows, whose bursts slide from one another's."""

    def __init__(self, names: list[str], flows: int) -> None:
        self._jobs = [Job(number, name) for number, name in enumerate(names, 1)]
        self._flows = flows
        self._views = Views()
        self._number = 0

    def look(self, iterations: int = 2) -> dict[str, Any]:
        ended = []
        for _ in range(iterations):
            self._number += 1
            for place, job in enumerate(self._jobs):
                begin = PERIOD_S * self._number + 0.02 * place * min(1.0, self._number / 30)
                length = 0.2 - 0.05 * min(1.0, self._number / 30)
                for flow in range(self._flows):
                    one = event(job.id, 1000 * job.id + flow, self._number, begin, begin + length)
                    ended += self._views.add([one])
        views = [self._views.of(job, self._flows, None) for job in self._jobs]
        return look_document(views, ended, "", time.time() - PERIOD_S * self._number)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    for each in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{each}")
    options.binary_location = shutil.which("chromium")
    service = Service(shutil.which("chromedriver"))
    driver = webdriver.Chrome(service=service, options=options)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def page() -> Iterator[Page]:
    with Page(("127.0.0.1", 0)) as found:
        yield found


def opened(browser: webdriver.Chrome, page: Page, width: int = 1200, height: int = 900) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.url)
    shown(browser, lambda: "job" in status(browser))


def shown(browser: webdriver.Chrome, asked: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not asked():
        assert time.monotonic() < deadline, browser.page_source
        time.sleep(0.1)


def status(browser: webdriver.Chrome) -> str:
    text: str = browser.execute_script("return document.getElementById('status').textContent")
    return text


def drawn(browser: webdriver.Chrome, selector: str) -> int:
    """The number of pixels of the first such canvas that are not empty."""
    script = """const canvas = document.querySelector(arguments[0]);
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        return data.filter((value, place) => place % 4 === 3 && value).length;"""
    count: int = browser.execute_script(script, selector)
    return count


def test_bursts_and_iterations_of_all_jobs_are_there(browser: webdriver.Chrome, page: Page) -> None:
    page.show(Jobs(["gpt2", "<b>bert</b>"], 2).look(60))
    opened(browser, page)
    assert status(browser) == "2 jobs, 4 connections"
    strips = [each.text for each in browser.find_elements("css selector", ".strip a")]
    assert strips == ["gpt2", "<b>bert</b>"]
    card, *others = [each.text for each in browser.find_elements("css selector", ".card")]
    assert len(others) == 1
    # Bursts get shorter in the first 30 iterations, by less than 2 ms each.
    figures = ("time\n500 ms", "first\n498 ms", "bound\n498 ms", "connections\n2")
    for figure in ("gpt2", *figures):
        assert figure in card
    assert drawn(browser, ".strip canvas") > 100
    assert drawn(browser, ".card canvas") > 100
    assert "Bursts of gpt2" in browser.execute_script(
        "return document.querySelector('.strip canvas').getAttribute('aria-label')"
    )
    severe = [each for each in browser.get_log("browser") if each["level"] == "SEVERE"]
    assert severe == []


def test_a_job_and_a_page_that_end_are_seen(browser: webdriver.Chrome, page: Page) -> None:
    page.show(Jobs(["gpt2", "bert"], 1).look(20))
    opened(browser, page)
    assert len(browser.find_elements("css selector", ".card")) == 2
    page.show(Jobs(["gpt2"], 1).look(20))
    shown(browser, lambda: "1 job," in status(browser))
    assert len(browser.find_elements("css selector", ".card")) == 1
    page.close()
    shown(browser, lambda: "No answer" in status(browser))


def test_keys_do_all_that_the_mouse_does(browser: webdriver.Chrome, page: Page) -> None:
    page.show(Jobs(["gpt2"], 1).look(20))
    opened(browser, page)
    body = browser.find_element("tag name", "body")
    body.send_keys(Keys.SPACE)
    assert status(browser).endswith("paused")
    page.show(Jobs(["gpt2", "bert"], 1).look(20))
    body.send_keys("+")
    window = "return document.getElementById('window').value"
    assert browser.execute_script(window) == "60"
    body.send_keys("--")
    assert browser.execute_script(window) == "15"
    assert "1 job," in status(browser)
    body.send_keys(Keys.SPACE)
    shown(browser, lambda: "2 jobs," in status(browser))
    reached = set()
    for _ in range(8):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        reached.add(active.get_attribute("id") or active.tag_name)
    assert reached >= {"pause", "window", "a", "job-1", "job-2"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_small_screens_and_dark_ones(browser: webdriver.Chrome, page: Page, scheme: str) -> None:
    page.show(Jobs([f"a-job-with-quite-a-long-name-{n}" for n in range(6)], 2).look(60))
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    opened(browser, page, 360, 740)
    wide = "return document.documentElement.scrollWidth"
    assert browser.execute_script(wide) <= 360
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    red = int(paper.split("(")[1].partition(",")[0])
    assert (red > 200) == (scheme == "light")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_only_who_has_the_token_sees_it(page: Page) -> None:
    address = urlsplit(page.url)

    def asked(path: str) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection(address.netloc)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Security-Policy"], answer.read()

    assert asked("/")[0] == asked("/data?token=wrong")[0] == asked("/data?token=%C3%A4")[0] == 403
    assert asked(f"/none?{address.query}")[0] == 404
    status_, policy, content = asked(f"/?{address.query}")
    assert status_ == 200
    assert "default-src 'none'" in policy
    assert b"http" not in content.replace(b"http-equiv", b"")  # nothing comes from elsewhere
    assert json.loads(asked(f"/data?{address.query}")[2])["error"] == "not looked at yet"
