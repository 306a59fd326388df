"""What the tests in a browser share: pressing."""


def press(element):
    """A click on the element itself: Chromium may lose one of the mouse that follows a scroll at once."""
    element.evaluate("element => element.click()")
