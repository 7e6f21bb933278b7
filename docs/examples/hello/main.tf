# A small module with a resource, an output, and a provisioner whose output appears in the log. It needs
# only the built-in provider.

terraform {
  required_version = ">= 1.4"
}

variable "name" {
  description = "The name in the greeting."
  type        = string
  default     = "world"
}

resource "terraform_data" "greeting" {
  input            = "Hello, ${var.name}!"
  triggers_replace = [var.name]

  provisioner "local-exec" {
    command = "echo \"$GREETING\""
    environment = {
      GREETING = self.input
    }
  }
}

output "greeting" {
  description = "The greeting."
  value       = terraform_data.greeting.output
}
