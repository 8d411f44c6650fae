"""The viewer: a read-only web server for a page that shows runs."""
