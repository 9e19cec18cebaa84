"""Every page, wide and narrow, light and dark, against WCAG 2.1 A and AA: axe-core finds nothing."""

from pathlib import Path

import axe_playwright_python
import pytest
import site_pages

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]

# Structure: every rule but contrast, on the whole page.
STRUCTURE = """levels => axe.run(document, {
    runOnly: levels, rules: {'color-contrast': {enabled: false}}, resultTypes: ['violations'],
}).then(found => found.violations)"""

# Contrast takes axe most of its time, and a chapter has some ten thousand elements. Two with the same colours and
# sizes and the same chain of classes up to the page have the same contrast: one of each is measured.
CONTRAST = """async () => {
    const drawn = new Map();
    for (const element of document.body.querySelectorAll('*')) {
        if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
        const style = getComputedStyle(element);
        let key = [style.color, style.backgroundColor, style.fontSize, style.fontWeight, style.opacity].join();
        for (let up = element; up !== document.body; up = up.parentElement) {
            key += `>${up.localName}.${up.getAttribute('class')}.${up.getAttribute('style')}`;
        }
        if (!drawn.has(key)) drawn.set(key, element);
    }
    const options = {runOnly: ['color-contrast'], resultTypes: ['violations']};
    return (await axe.run({include: [...drawn.values()]}, options)).violations;
}"""


def told(rules):
    """Violations in words: rule, element, what is wrong."""
    return [
        f"{rule['id']} at {node['target'][0]}: {' '.join(node['failureSummary'].split())[:300]}"
        for rule in rules
        for node in rule["nodes"]
    ]


def structure_faults(page):
    """What is wrong on an open page, colours aside."""
    return told(page.evaluate(STRUCTURE, LEVELS))


def contrast_faults(page):
    """Which text on an open page is too faint."""
    return told(page.evaluate(CONTRAST))


def faults(page):
    """What is wrong on an open page: structure wide and narrow, contrast light and dark."""
    page.add_script_tag(path=AXE)
    found = structure_faults(page) + contrast_faults(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html[data-theme=dark]", state="attached")
    found += contrast_faults(page)
    page.set_viewport_size({"width": 390, "height": 800})
    # The theme waits 0.3 s after a resize before it makes what scrolls now reachable by keyboard.
    page.wait_for_timeout(600)
    return found + structure_faults(page)


@pytest.mark.browser
def test_axe_finds_no_violation_on_any_page_wide_or_narrow_light_or_dark(site, site_address, visit):
    found, names = {}, [page.path.relative_to(site).as_posix() for page in site_pages.pages(site)]
    for name in names:
        if name != "index.html":  # it only leads on
            # Nothing may fade in while colours are measured.
            seen = visit(site_address + name, reduced_motion="reduce")
            found[name] = faults(seen.page)
            seen.page.context.close()
    assert len(found) > 10
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.browser
def test_axe_would_see_a_missing_name_and_faint_text(tmp_path, visit):
    page = tmp_path / "page.html"
    page.write_text(
        "<html><head><title>A</title></head><body style='background:#fff'><main><h1>A</h1><img src='data:,'>"
        "<p>plain</p><p style='color:#bbb'>faint</p></main></body></html>"
    )
    seen = visit(page.as_uri())
    seen.page.add_script_tag(path=AXE)
    found = " ".join(structure_faults(seen.page))
    assert "image-alt" in found and "html-has-lang" in found
    assert len(contrast_faults(seen.page)) == 1
