"""Write anew what is made of the code."""

from tests.pages.made import everything

for path, text in everything().items():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
