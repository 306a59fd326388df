"""What the tests in a browser share: pressing, by mouse and by keyboard."""


def focused(page):
    return page.evaluate("document.activeElement.textContent")


def press_until(page, key, text, most=20):
    for _ in range(most):
        page.keyboard.press(key)
        if text in focused(page)[:40]:
            return
    raise AssertionError(f"{most} times {key} does not reach {text!r}")


def press(element):
    """A click on the element itself: Chromium may lose one of the mouse that follows a scroll at once."""
    element.evaluate("element => element.click()")
