"""`fettle lint`: the rules of the webhook over files, before anybody applies them."""
