"""What is around every page."""

from __future__ import annotations

from playwright.sync_api import Page, expect


def test_the_first_page_has_its_name_and_says_who_looks(page: Page) -> None:
    expect(page).to_have_title("Overview · Trainmaster")
    expect(page.get_by_text("(admin)")).to_be_visible()
