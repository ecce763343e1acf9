"""What the pages of the admin say in their templates."""
