"""What the compiler says, and how it is shown."""
