"""Serve a built site on this computer only, print its address, and open a browser where there is one."""

import argparse
import http.server
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serve files without a log line for every request, and let no browser keep a page past the next build."""

    def end_headers(self):
        """Have the browser ask whether its copy is still the current one."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format, *args):
        """Print nothing."""


def make_server(site: Path, port: int = 8000) -> http.server.ThreadingHTTPServer:
    """Return a server for the folder `site` on 127.0.0.1, at `port` or, if that is taken, the next free one.

    Port 0 lets the system choose. Raises ValueError if `site` holds no index.html.
    """
    if not (site / "index.html").is_file():
        raise ValueError(f"site must be a folder with an index.html, got {site}: build it first (make book)")
    handler = partial(QuietHandler, directory=str(site))
    candidates = [0] if port == 0 else [*range(port, min(port + 20, 65536)), 0]
    for candidate in candidates:
        try:
            return http.server.ThreadingHTTPServer(("127.0.0.1", candidate), handler)
        except OSError:
            if candidate == candidates[-1]:
                raise
    raise AssertionError("unreachable: the last candidate returns or raises")


@contextmanager
def serving(site: Path) -> Iterator[str]:
    """Serve `site` in the background at a free port; gives its address, which ends in a slash."""
    server = make_server(site, port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="the folder that holds index.html")
    parser.add_argument("--port", type=int, default=8000, help="first port to try (default 8000)")
    arguments = parser.parse_args()
    try:
        server = make_server(arguments.site, arguments.port)
    except ValueError as error:
        sys.exit(str(error))
    address = f"http://localhost:{server.server_port}/"
    print(f"The book is at {address}    (Ctrl-C stops it)", flush=True)
    # Opening may wait for a browser, or find none: it must hold up neither the server nor the reader.
    threading.Thread(target=open_browser, args=(address,), daemon=True).start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("\nStopped.")
    finally:
        server.server_close()


def open_browser(address: str) -> None:
    """Open `address` in a graphical browser; where there is none, leave it at the printed address."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return
    # A text browser would take over the terminal.
    if isinstance(browser, webbrowser.GenericBrowser) and not isinstance(browser, webbrowser.BackgroundBrowser):
        return
    browser.open(address)


if __name__ == "__main__":
    main()
