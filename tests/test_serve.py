"""`make book` ends with the site served on this machine: book/serve.py."""

import re
import socket
import subprocess
import sys
import threading
import urllib.request
import webbrowser

import pytest
from conftest import ROOT


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "index.html").write_text("<p>the book</p>")
    return tmp_path


def fetch(address):
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read().decode()


def test_a_taken_port_is_passed_over(folder, serve):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serve.make_server(folder, port) as server:
            assert server.server_port != port
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            assert "the book" in fetch(f"http://127.0.0.1:{server.server_port}/")
            server.shutdown()
            thread.join()


def test_only_this_machine_can_connect(folder, serve):
    with serve.make_server(folder, 0) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_a_folder_without_a_built_site_is_refused(tmp_path, serve):
    with pytest.raises(ValueError, match=r"site must be a folder with an index\.html, got .*: build it first"):
        serve.make_server(tmp_path)


def test_the_program_prints_an_address_that_answers_where_there_is_no_browser(folder):
    command = [sys.executable, str(ROOT / "book" / "serve.py"), str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PATH": ""}) as program:
        try:
            address = re.search(r"http://localhost:\d+/", program.stdout.readline()).group()
            assert "the book" in fetch(address)
        finally:
            program.terminate()


@pytest.mark.parametrize(
    ("browser", "opened"),
    [(webbrowser.BackgroundBrowser("firefox"), True), (webbrowser.GenericBrowser("lynx"), False)],
    ids=["graphical", "in the terminal"],
)
def test_only_a_graphical_browser_is_opened(serve, monkeypatch, browser, opened):
    addresses = []
    monkeypatch.setattr(webbrowser, "get", lambda: browser)
    monkeypatch.setattr(type(browser), "open", lambda self, address: addresses.append(address))
    serve.open_browser("http://localhost:1/")
    assert addresses == (["http://localhost:1/"] if opened else [])
