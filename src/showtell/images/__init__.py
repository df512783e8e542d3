"""Images: files of any kind to tensors."""
