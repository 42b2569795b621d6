"""What services say of themselves."""
