"""`fettle lint`: checks files with the rules of the webhook, before they are applied."""
