"""The admission webhook: one face of *watch → inventory → health → verdict → answer*.

`review` reads and writes AdmissionReviews, `mutating` and `validating` judge, `patches` edits raw
objects, `app` serves. It answers from the newest view alone and asks nobody while a request waits.
Never imports the extender, the steward or the feeds.
"""
