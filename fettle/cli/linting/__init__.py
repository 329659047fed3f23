"""`fettle lint`: the rules of the webhook over files, before they are applied."""
